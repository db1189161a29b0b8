package metrics

import (
	"errors"

	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// Nacos returns a sink for what a Nacos client observes. Name is the
// registry's name in the configuration. Making one
// says nothing of a peer that is there already.
func (m *Metrics) Nacos(name string) func(nacos.Observation) {
	labels := []string{name, "nacos", "target"}
	m.target.up.WithLabelValues(labels...)
	m.stream.reconnects.WithLabelValues(labels...)
	m.sessions.WithLabelValues(name)
	failed := func(method string, err error) {
		m.target.rpcErrors.WithLabelValues(name, method, nacosCode(err)).Inc()
	}
	return func(o nacos.Observation) {
		up := m.target.up.WithLabelValues(labels...) // anew each time: the peer may have been forgotten meanwhile
		m.stream.bytes.WithLabelValues(name, "nacos").Add(float64(o.Got))
		switch {
		case o.Op == nacos.OpLost:
			up.Set(0)
			m.sessions.WithLabelValues(name).Inc()
		case o.Op == nacos.OpConnect && o.Err != nil:
			up.Set(0)
			failed(o.Op, o.Err)
		case o.Op == nacos.OpConnect:
			up.Set(1)
			if o.Again {
				m.stream.reconnects.WithLabelValues(labels...).Inc()
			}
		case o.Op == nacos.OpLogin && o.Err != nil:
			m.logins.WithLabelValues(name, nacosCode(o.Err)).Inc()
		case o.Op == nacos.OpLogin:
			m.logins.WithLabelValues(name, "ok").Inc()
		case o.Err == nil:
			m.target.contact.WithLabelValues(labels...).SetToCurrentTime()
		}
	}
}

// nacosCode returns the class of an error of a Nacos client.
func nacosCode(err error) string {
	switch {
	case errors.Is(err, nacos.ErrDenied):
		return "denied"
	case errors.Is(err, nacos.ErrThrottled):
		return "throttled"
	case errors.Is(err, nacos.ErrNotReady):
		return "not_ready"
	default:
		return errorCode(err)
	}
}

// ZooKeeper returns a sink for the states of the connection over which a
// ZooKeeper is written to. Name is the registry's name in the configuration.
func (m *Metrics) ZooKeeper(name string) func(zookeeper.State) {
	const kind, direction = "zookeeper", "target"
	up := m.target.up.WithLabelValues(name, kind, direction)
	reconnects := m.stream.reconnects.WithLabelValues(name, kind, direction)
	var before zookeeper.State
	return func(s zookeeper.State) {
		up.Set(0)
		if s.Connected {
			up.Set(1)
		}
		if s.Connected && !before.Connected && before.Session != 0 {
			reconnects.Inc()
		}
		before = s
	}
}
