package metrics

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/generator"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

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

// servedMetrics count what istiods are served.
type servedMetrics struct {
	pushes, errors, refused, rest *prometheus.CounterVec
	resources, streams            *prometheus.GaugeVec
	latency                       *prometheus.HistogramVec
}

func newServedMetrics(m *Metrics) servedMetrics {
	return servedMetrics{
		pushes:    m.counter("mcp_pushes_total", "Sets of ServiceEntries that were put together for istiods.", "peer"),
		errors:    m.counter("mcp_faults_total", "Answers that were refused, addresses that ran out, state files that could not be written.", "peer", "reason"),
		refused:   m.counter("mcp_refused_total", "Clients at the address for istiod that were refused.", "peer", "reason"),
		rest:      m.counter("mcp_rest_requests_total", "Requests of data planes over REST.", "peer"),
		resources: m.gauge("mcp_resources", "ServiceEntries in the set that is served.", "peer"),
		streams:   m.gauge("mcp_streams", "Streams of istiods and data planes that are open, and connections over REST.", "peer"),
		latency:   m.histogram("mcp_push_duration_seconds", "From the first change in a set until it was sent.", "peer"),
	}
}

// Served returns a sink for what a mesh target observes. Peer is its name.
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
