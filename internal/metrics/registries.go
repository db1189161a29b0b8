package metrics

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
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
	m.target.up.WithLabelValues(labels...)
	m.stream.reconnects.WithLabelValues(labels...)
	m.sessions.WithLabelValues(name)
	failed := func(method string, err error) {
		m.target.rpcErrors.WithLabelValues(name, method, nacosCode(err)).Inc()
	}
	return func(o nacos.Observation) {
		up := m.target.up.WithLabelValues(labels...) // anew each time: the registry may have been forgotten meanwhile
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
		m.target.rpc.WithLabelValues(name, method).Observe(o.Duration.Seconds())
		m.stream.bytes.WithLabelValues(name, method).Add(float64(o.Bytes))
		if o.Err == nil {
			return
		}
		code := "other"
		if e, ok := errors.AsType[*debug.Error](o.Err); ok {
			code = strings.ReplaceAll(string(e.Cause), " ", "_")
		}
		m.target.rpcErrors.WithLabelValues(name, method, code).Inc()
	}
}

type servedMetrics struct {
	pushes, errors, refused, rest *prometheus.CounterVec
	resources, streams            *prometheus.GaugeVec
	latency                       *prometheus.HistogramVec
}

func newServedMetrics(m *Metrics) servedMetrics {
	return servedMetrics{
		pushes:    m.counter("mcp_pushes_total", "Sets of ServiceEntries that were put together for istiods.", "registry"),
		errors:    m.counter("mcp_errors_total", "Answers that were refused, addresses that ran out, state files that could not be written.", "registry", "reason"),
		refused:   m.counter("mcp_refused_total", "Clients at the address for istiod that were refused.", "registry", "reason"),
		rest:      m.counter("mcp_rest_requests_total", "Requests of data planes over REST.", "registry"),
		resources: m.gauge("mcp_resources", "ServiceEntries in the set that is served.", "registry"),
		streams:   m.gauge("mcp_streams", "Streams of istiods and data planes that are open, and connections over REST.", "registry"),
		latency:   m.histogram("mcp_push_duration_seconds", "From the first change in a set until it was sent.", "registry"),
	}
}

// Served returns a sink for what a mesh target observes. Registry is its name.
func (m *Metrics) Served(name string) func(mcp.Observation) {
	s := m.served
	for _, r := range mcp.Refusals() {
		s.refused.WithLabelValues(name, string(r))
	}
	return func(o mcp.Observation) {
		switch o.Kind {
		case mcp.ObservedPush:
			s.pushes.WithLabelValues(name).Inc()
			s.resources.WithLabelValues(name).Set(float64(o.Count))
			s.latency.WithLabelValues(name).Observe(o.Latency.Seconds())
		case mcp.ObservedOpen:
			s.streams.WithLabelValues(name).Inc()
		case mcp.ObservedClosed:
			s.streams.WithLabelValues(name).Dec()
		case mcp.ObservedREST:
			s.rest.WithLabelValues(name).Inc()
		case mcp.ObservedRefused:
			s.refused.WithLabelValues(name, string(o.Refused)).Inc()
		case mcp.ObservedNack, mcp.ObservedState, mcp.ObservedNoAddress:
			s.errors.WithLabelValues(name, string(o.Kind)).Inc()
		}
	}
}

type streamMetrics struct {
	up, contact                 *prometheus.GaugeVec
	streams, reconnects, events *prometheus.CounterVec
	responses, requests, nacks  *prometheus.CounterVec
	bytes, errors, lost         *prometheus.CounterVec
}

func newStreamMetrics(m *Metrics) streamMetrics {
	return streamMetrics{
		up: m.target.up, contact: m.target.contact, errors: m.target.rpcErrors, lost: m.sessions,
		streams:    m.counter("xds_streams_total", "xDS streams that were opened.", "registry"),
		reconnects: m.counter("registry_reconnects_total", "Connections to a registry after the first.", "registry", "kind", "direction"),
		events:     m.counter("events_received_total", "Resources or records that a source was sent.", "registry"),
		responses:  m.counter("xds_responses_total", "xDS responses received.", "registry", "type"),
		requests:   m.counter("xds_requests_total", "xDS requests sent, acknowledgements included.", "registry", "type"),
		nacks:      m.counter("xds_nacks_total", "xDS responses rejected, in part at least.", "registry", "type"),
		bytes:      m.counter("rpc_bytes_total", "Bytes of payload received from a registry.", "registry", "method"),
	}
}

// Stream returns a sink for what an xDS client observes. Name is the mesh's
// name in the configuration.
func (m *Metrics) Stream(name string) func(ads.Observation) {
	s := m.stream
	up, contact := s.up.WithLabelValues(name, "mesh", "source"), s.contact.WithLabelValues(name, "mesh", "source")
	failed := func(o ads.Observation) {
		up.Set(0)
		if o.Err != nil {
			s.errors.WithLabelValues(name, "stream", strings.ToLower(status.Code(o.Err).String())).Inc()
		}
	}
	return func(o ads.Observation) {
		switch o.Kind {
		case ads.StreamOpened:
			s.streams.WithLabelValues(name).Inc()
			if o.Epoch > 1 {
				s.reconnects.WithLabelValues(name, "mesh", "source").Inc()
			}
		case ads.StreamClosed:
			failed(o)
			if o.Err != nil {
				s.lost.WithLabelValues(name).Inc()
			}
		case ads.ConnectFailed:
			failed(o)
		case ads.ResponseReceived:
			up.Set(1)
			contact.SetToCurrentTime()
			s.responses.WithLabelValues(name, resourceType(o.Type)).Inc()
			s.events.WithLabelValues(name).Add(float64(o.Resources))
			s.bytes.WithLabelValues(name, "stream").Add(float64(o.Bytes))
		case ads.Rejected:
			s.nacks.WithLabelValues(name, resourceType(o.Type)).Inc()
		case ads.RequestSent:
			s.requests.WithLabelValues(name, resourceType(o.Type)).Inc()
		default: // an acknowledgement is a request that is counted as sent
		}
	}
}

func resourceType(url string) string {
	short := url[strings.LastIndexByte(url, '.')+1:]
	return oneOf(short, "Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration", "Secret")
}
