package metrics

import (
	"errors"

	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// Nacos returns a sink for what a Nacos client observes. Peer is the
// registry's name in the configuration.
func (m *Metrics) Nacos(peer string) func(nacos.Observation) {
	const kind, direction = "nacos", "target"
	up, contact := m.target.up.WithLabelValues(peer, kind, direction), m.target.contact.WithLabelValues(peer, kind, direction)
	up.Set(0)
	reconnects := m.stream.reconnects.WithLabelValues(peer, kind, direction)
	bytes := m.stream.bytes.WithLabelValues(peer, "nacos")
	lost := m.sessions.WithLabelValues(peer)
	failed := func(method string, err error) {
		m.target.rpcErrors.WithLabelValues(peer, method, nacosCode(err)).Inc()
	}
	return func(o nacos.Observation) {
		bytes.Add(float64(o.Got))
		switch {
		case o.Op == nacos.OpLost:
			up.Set(0)
			lost.Inc()
		case o.Op == nacos.OpConnect && o.Err != nil:
			up.Set(0)
			failed(o.Op, o.Err)
		case o.Op == nacos.OpConnect:
			up.Set(1)
			if o.Again {
				reconnects.Inc()
			}
		case o.Op == nacos.OpLogin && o.Err != nil:
			m.logins.WithLabelValues(peer, nacosCode(o.Err)).Inc()
		case o.Op == nacos.OpLogin:
			m.logins.WithLabelValues(peer, "ok").Inc()
		case o.Err == nil:
			contact.SetToCurrentTime()
		}
	}
}

// nacosCode puts an error of a Nacos client into one of few words.
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
