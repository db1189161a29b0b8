package metrics

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/generator"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// Nacos returns a sink for the observations of a Nacos client. Name is the name of the
// registry in the configuration.
func (m *Metrics) Nacos(name string) func(nacos.Observation) {
	m.sessions.WithLabelValues(name)
	return func(o nacos.Observation) {
		m.bytes.WithLabelValues(name, methodNacos).Add(float64(o.Got))
		switch {
		case o.Op == nacos.OpLost:
			m.sessions.WithLabelValues(name).Inc()
		case o.Op == nacos.OpConnect && o.Err != nil:
			m.rpcErrors.WithLabelValues(name, "", o.Op, nacosCode(o.Err)).Inc()
		case o.Op == nacos.OpLogin && o.Err != nil:
			m.logins.WithLabelValues(name, nacosCode(o.Err)).Inc()
		case o.Op == nacos.OpLogin:
			m.logins.WithLabelValues(name, loginOK).Inc()
		}
	}
}

func nacosCode(err error) string {
	switch {
	case errors.Is(err, nacos.ErrDenied):
		return codeDenied
	case errors.Is(err, nacos.ErrThrottled):
		return codeThrottled
	case errors.Is(err, nacos.ErrNotReady):
		return codeNotReady
	default:
		return errorCode(err)
	}
}

// Sessions returns a sink for the states of a ZooKeeper connection. The sink counts lost
// sessions. Name is the name of the registry in the configuration.
func (m *Metrics) Sessions(name string) func(zookeeper.State) {
	sessions := 0
	return func(s zookeeper.State) {
		if s.Sessions > max(sessions, 1) {
			m.sessions.WithLabelValues(name).Inc()
		}
		sessions = s.Sessions
	}
}

// Mapping returns a sink for the observations of the reader of the interface mapping.
// Name is the name of the mesh in the configuration.
func (m *Metrics) Mapping(name string) func(debug.Observation) {
	return func(o debug.Observation) {
		method := generator.Query
		if o.Query != method {
			method = methodDebug + oneOf(o.Query, debugQueries())
		}
		m.rpc.WithLabelValues(name, "", method).Observe(o.Duration.Seconds())
		m.bytes.WithLabelValues(name, method).Add(float64(o.Bytes))
		if o.Err == nil {
			return
		}
		code := other
		if e, ok := errors.AsType[*debug.Error](o.Err); ok {
			code = causeCode(e.Cause)
		}
		m.rpcErrors.WithLabelValues(name, "", method, code).Inc()
	}
}

// Served returns a sink for the observations of a target that serves a mesh at the
// address listen.
func (m *Metrics) Served(registry, listen string) func(mcp.Observation) {
	for _, r := range mcp.Refusals() {
		m.servedRefused.WithLabelValues(registry, listen, string(r))
	}
	return func(o mcp.Observation) {
		switch o.Kind {
		case mcp.ObservedPush:
			m.pushes.WithLabelValues(registry, listen).Inc()
			m.servedResources.WithLabelValues(registry, listen).Set(float64(o.Count))
			m.pushLatency.WithLabelValues(registry, listen).Observe(o.Latency.Seconds())
		case mcp.ObservedOpen:
			m.servedStreams.WithLabelValues(registry, listen).Inc()
		case mcp.ObservedClosed:
			m.servedStreams.WithLabelValues(registry, listen).Dec()
		case mcp.ObservedREST:
			m.restRequests.WithLabelValues(registry, listen).Inc()
		case mcp.ObservedRefused:
			m.servedRefused.WithLabelValues(registry, listen, string(o.Refused)).Inc()
		case mcp.ObservedNack, mcp.ObservedPersistence, mcp.ObservedNoAddress:
			m.servedErrors.WithLabelValues(registry, listen, string(o.Kind)).Inc()
		}
	}
}

// Stream returns a sink for the observations of an xDS client. Name is the name of the
// mesh in the configuration.
func (m *Metrics) Stream(name string) func(ads.Observation) {
	failed := func(err error) {
		m.rpcErrors.WithLabelValues(name, "", methodStream, streamCode(status.Code(err))).Inc()
	}
	return func(o ads.Observation) {
		switch o.Kind {
		case ads.StreamOpened:
			m.streams.WithLabelValues(name).Inc()
		case ads.StreamClosed:
			if o.Err != nil {
				failed(o.Err)
				m.sessions.WithLabelValues(name).Inc()
			}
		case ads.ConnectFailed:
			if o.Err != nil {
				failed(o.Err)
			}
		case ads.ResponseReceived:
			m.responses.WithLabelValues(name, resourceType(o.Type)).Inc()
			m.events.WithLabelValues(name).Add(float64(o.Resources))
			m.bytes.WithLabelValues(name, methodStream).Add(float64(o.Bytes))
		case ads.Rejected:
			m.nacks.WithLabelValues(name, resourceType(o.Type)).Inc()
		case ads.RequestSent:
			m.requests.WithLabelValues(name, resourceType(o.Type)).Inc()
		default: // acknowledgements are already counted as sent requests
		}
	}
}

func causeCode(c debug.Cause) string { return strings.ReplaceAll(string(c), " ", "_") }

func streamCode(c codes.Code) string { return strings.ToLower(c.String()) }

func resourceType(url string) string {
	short := url[strings.LastIndexByte(url, '.')+1:]
	return oneOf(short, resourceTypes())
}
