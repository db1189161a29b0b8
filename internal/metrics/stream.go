package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// streamMetrics count what happens on xDS streams.
type streamMetrics struct {
	up, contact                 *prometheus.GaugeVec
	streams, reconnects, events *prometheus.CounterVec
	responses, requests, nacks  *prometheus.CounterVec
	bytes, errors, lost         *prometheus.CounterVec
}

func newStreamMetrics(m *Metrics) streamMetrics {
	return streamMetrics{
		up: m.target.up, contact: m.target.contact, errors: m.target.rpcErrors, lost: m.sessions,
		streams:    m.counter("xds_streams_total", "xDS streams that were opened.", "peer"),
		reconnects: m.counter("peer_reconnects_total", "Connections to a registry after the first.", "peer", "kind", "direction"),
		events:     m.counter("events_received_total", "Resources or records that a source was sent.", "peer"),
		responses:  m.counter("xds_responses_total", "xDS responses received.", "peer", "type"),
		requests:   m.counter("xds_requests_total", "xDS requests sent, acknowledgements included.", "peer", "type"),
		nacks:      m.counter("xds_nacks_total", "xDS responses rejected, in part at least.", "peer", "type"),
		bytes:      m.counter("rpc_bytes_total", "Bytes of payload received from a registry.", "peer", "method"),
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

// resourceType returns the short name of a resource type.
func resourceType(url string) string {
	short := url[strings.LastIndexByte(url, '.')+1:]
	return oneOf(short, "Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration", "Secret")
}
