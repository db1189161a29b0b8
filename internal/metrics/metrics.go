// Package metrics counts what the bridge does, under the names that
// docs/reference/metrics.md lists. Labels are names of the configuration and
// values of fixed sets; no service, address or error text is ever one.
package metrics

import (
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Prefix begins every name of ours.
const Prefix = "xdsbridge_"

// Build says what is running.
type Build struct{ Version, Revision string }

// Metrics is one set of metrics with a registry of its own. It is safe for
// concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	defined  []Definition
	target   targetMetrics
	stream   streamMetrics
	served   servedMetrics
	sessions *prometheus.CounterVec
	limits   *prometheus.GaugeVec
	logins   *prometheus.CounterVec
	config   configMetrics
	vectors  []vector
}

// Definition describes one metric.
type Definition struct {
	Name, Type, Help string
	Labels           []string
}

// New returns metrics in which nothing has been counted yet.
func New(b Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gauge("build_info", "What is running; always 1.", "version", "revision", "go_version").
		WithLabelValues(b.Version, b.Revision, runtime.Version()).Set(1)
	m.sessions = m.counter("sessions_lost_total", "Sessions or streams that ended other than by our own wish.", "registry")
	m.logins = m.counter("logins_total", "Times that a registry was asked for a token, by its result.", "registry", "result")
	m.limits = m.gauge("limit_usage_ratio", "How much of a registry's limit the fullest group uses; 1 is all of it.", "registry", "limit")
	m.target = newTargetMetrics(m)
	m.stream = newStreamMetrics(m)
	m.served = newServedMetrics(m)
	m.config = newConfigMetrics(m)
	return m
}

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, MaxRequestsInFlight: 4})
}

// Definitions returns all metrics of ours by name.
func (m *Metrics) Definitions() []Definition {
	all := slices.Clone(m.defined)
	slices.SortFunc(all, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// LimitUsage records how much of a limit of a registry is used. The limit is of a
// fixed set, such as znode_children_bytes.
func (m *Metrics) LimitUsage(name, limit string, ratio float64) {
	m.limits.WithLabelValues(name, limit).Set(ratio)
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	m.define("counter", name, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: Prefix + name, Help: help}, labels)
	m.register(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	m.define("gauge", name, help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: Prefix + name, Help: help}, labels)
	m.register(v)
	return v
}

func (m *Metrics) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	m.define("histogram", name, help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: Prefix + name, Help: help, Buckets: buckets()}, labels)
	m.register(v)
	return v
}

// buckets reach from a millisecond, the time of a change of ours, to a
// minute, which is what no change should.
func buckets() []float64 {
	return []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}
}

func (m *Metrics) define(kind, name, help string, labels []string) {
	m.defined = append(m.defined, Definition{Name: Prefix + name, Type: kind, Help: help, Labels: labels})
}

// configMetrics report which configuration runs.
type configMetrics struct{ ok, since *prometheus.GaugeVec }

func newConfigMetrics(m *Metrics) configMetrics {
	return configMetrics{
		ok:    m.gauge("config_last_reload_successful", "Whether the configuration file, as it was read last, is what runs."),
		since: m.gauge("config_last_reload_success_timestamp_seconds", "When the configuration that runs was read."),
	}
}

// Reloaded records whether a configuration that was read is what runs.
func (m *Metrics) Reloaded(ok bool) { //nolint:revive // an outcome, not a flag
	if !ok {
		m.config.ok.WithLabelValues().Set(0)
		return
	}
	m.config.ok.WithLabelValues().Set(1)
	m.config.since.WithLabelValues().SetToCurrentTime()
}

// Forget drops every series of a registry that is no longer in the configuration.
func (m *Metrics) Forget(name string) {
	for _, v := range m.vectors {
		v.DeletePartialMatch(prometheus.Labels{"registry": name})
	}
}

// ForgetSource drops the series of a registry as a source: it is no longer read,
// and still written to.
func (m *Metrics) ForgetSource(name string) {
	for _, v := range m.vectors {
		v.DeletePartialMatch(prometheus.Labels{"registry": name, "direction": "source"})
	}
	s := m.stream
	for _, v := range []vector{s.streams, s.events, s.responses, s.requests, s.nacks, s.bytes} {
		v.DeletePartialMatch(prometheus.Labels{"registry": name})
	}
}

// vector is what all metrics with labels have in common.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(labels prometheus.Labels) int
}

func (m *Metrics) register(v vector) {
	m.registry.MustRegister(v)
	m.vectors = append(m.vectors, v)
}
