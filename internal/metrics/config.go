package metrics

import "github.com/prometheus/client_golang/prometheus"

// configMetrics tell which configuration runs.
type configMetrics struct{ ok, since *prometheus.GaugeVec }

func newConfigMetrics(m *Metrics) configMetrics {
	return configMetrics{
		ok:    m.gauge("config_last_reload_successful", "Whether the configuration file, as it was read last, is what runs."),
		since: m.gauge("config_last_reload_success_timestamp_seconds", "When the configuration that runs was read."),
	}
}

// Reloaded notes whether a configuration that was read is what runs.
func (m *Metrics) Reloaded(ok bool) { //nolint:revive // an outcome, not a flag
	if !ok {
		m.config.ok.WithLabelValues().Set(0)
		return
	}
	m.config.ok.WithLabelValues().Set(1)
	m.config.since.WithLabelValues().SetToCurrentTime()
}

// Forget drops every series of a peer that is no longer in the configuration.
func (m *Metrics) Forget(peer string) {
	for _, v := range m.vectors {
		v.DeletePartialMatch(prometheus.Labels{"peer": peer})
	}
}

// ForgetSource drops the series of a peer as a source: it is no longer read,
// and still written to.
func (m *Metrics) ForgetSource(peer string) {
	for _, v := range m.vectors {
		v.DeletePartialMatch(prometheus.Labels{"peer": peer, "direction": "source"})
	}
	s := m.stream
	for _, v := range []vector{s.streams, s.events, s.responses, s.requests, s.nacks, s.bytes} {
		v.DeletePartialMatch(prometheus.Labels{"peer": peer})
	}
}

// vector is what all metrics with labels have in common.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(labels prometheus.Labels) int
}

// register adds a metric with labels to the registry.
func (m *Metrics) register(v vector) {
	m.registry.MustRegister(v)
	m.vectors = append(m.vectors, v)
}
