package metrics

import (
	"errors"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/generator"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// Nacos returns a sink for what a Nacos client observes. Name is the
// registry's name in the configuration. Making one
// says nothing of a registry that is there already.
func (m *Metrics) Nacos(name string) func(nacos.Observation) {
	labels := []string{name, "nacos", "target"}
	m.up.WithLabelValues(labels...)
	m.reconnects.WithLabelValues(labels...)
	m.sessions.WithLabelValues(name)
	failed := func(method string, err error) {
		m.rpcErrors.WithLabelValues(name, method, nacosCode(err)).Inc()
	}
	return func(o nacos.Observation) {
		up := m.up.WithLabelValues(labels...) // anew each time: the registry may have been forgotten meanwhile
		m.bytes.WithLabelValues(name, "nacos").Add(float64(o.Got))
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
				m.reconnects.WithLabelValues(labels...).Inc()
			}
		case o.Op == nacos.OpLogin && o.Err != nil:
			m.logins.WithLabelValues(name, nacosCode(o.Err)).Inc()
		case o.Op == nacos.OpLogin:
			m.logins.WithLabelValues(name, "ok").Inc()
		case o.Err == nil:
			m.contact.WithLabelValues(labels...).SetToCurrentTime()
		}
	}
}

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
	up := m.up.WithLabelValues(name, kind, direction)
	reconnects := m.reconnects.WithLabelValues(name, kind, direction)
	count := m.Sessions(name)
	var before zookeeper.State
	return func(s zookeeper.State) {
		count(s)
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

// Sessions returns a sink for the states of a connection to a ZooKeeper, which counts the
// sessions that it lost.
func (m *Metrics) Sessions(name string) func(zookeeper.State) {
	sessions := 0
	return func(s zookeeper.State) {
		if s.Sessions > max(sessions, 1) {
			m.sessions.WithLabelValues(name).Inc()
		}
		sessions = s.Sessions
	}
}

// Mapping returns a sink for what the reader of the interface mapping
// observes. Name is the mesh's name in the configuration.
func (m *Metrics) Mapping(name string) func(debug.Observation) {
	return func(o debug.Observation) {
		method := generator.Query
		if o.Query != method {
			method = "debug_" + oneOf(o.Query, "adsz", "connections", "client")
		}
		m.rpc.WithLabelValues(name, method).Observe(o.Duration.Seconds())
		m.bytes.WithLabelValues(name, method).Add(float64(o.Bytes))
		if o.Err == nil {
			return
		}
		code := "other"
		if e, ok := errors.AsType[*debug.Error](o.Err); ok {
			code = strings.ReplaceAll(string(e.Cause), " ", "_")
		}
		m.rpcErrors.WithLabelValues(name, method, code).Inc()
	}
}

// Served returns a sink for what a mesh target observes. Registry is its name.
func (m *Metrics) Served(name string) func(mcp.Observation) {
	for _, r := range mcp.Refusals() {
		m.servedRefused.WithLabelValues(name, string(r))
	}
	return func(o mcp.Observation) {
		switch o.Kind {
		case mcp.ObservedPush:
			m.pushes.WithLabelValues(name).Inc()
			m.servedResources.WithLabelValues(name).Set(float64(o.Count))
			m.pushLatency.WithLabelValues(name).Observe(o.Latency.Seconds())
		case mcp.ObservedOpen:
			m.servedStreams.WithLabelValues(name).Inc()
		case mcp.ObservedClosed:
			m.servedStreams.WithLabelValues(name).Dec()
		case mcp.ObservedREST:
			m.restRequests.WithLabelValues(name).Inc()
		case mcp.ObservedRefused:
			m.servedRefused.WithLabelValues(name, string(o.Refused)).Inc()
		case mcp.ObservedNack, mcp.ObservedState, mcp.ObservedNoAddress:
			m.servedErrors.WithLabelValues(name, string(o.Kind)).Inc()
		}
	}
}

// Stream returns a sink for what an xDS client observes. Name is the mesh's
// name in the configuration.
func (m *Metrics) Stream(name string) func(ads.Observation) {
	up, contact := m.up.WithLabelValues(name, "mesh", "source"), m.contact.WithLabelValues(name, "mesh", "source")
	failed := func(o ads.Observation) {
		up.Set(0)
		if o.Err != nil {
			m.rpcErrors.WithLabelValues(name, "stream", strings.ToLower(status.Code(o.Err).String())).Inc()
		}
	}
	return func(o ads.Observation) {
		switch o.Kind {
		case ads.StreamOpened:
			m.streams.WithLabelValues(name).Inc()
			if o.Epoch > 1 {
				m.reconnects.WithLabelValues(name, "mesh", "source").Inc()
			}
		case ads.StreamClosed:
			failed(o)
			if o.Err != nil {
				m.sessions.WithLabelValues(name).Inc()
			}
		case ads.ConnectFailed:
			failed(o)
		case ads.ResponseReceived:
			up.Set(1)
			contact.SetToCurrentTime()
			m.responses.WithLabelValues(name, resourceType(o.Type)).Inc()
			m.events.WithLabelValues(name).Add(float64(o.Resources))
			m.bytes.WithLabelValues(name, "stream").Add(float64(o.Bytes))
		case ads.Rejected:
			m.nacks.WithLabelValues(name, resourceType(o.Type)).Inc()
		case ads.RequestSent:
			m.requests.WithLabelValues(name, resourceType(o.Type)).Inc()
		default: // an acknowledgement is a request that is counted as sent
		}
	}
}

func resourceType(url string) string {
	short := url[strings.LastIndexByte(url, '.')+1:]
	return oneOf(short, "Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration", "Secret")
}
