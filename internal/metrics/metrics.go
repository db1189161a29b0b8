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
	vectors  []vector

	limits                           *prometheus.GaugeVec // of registries
	sessions, logins                 *prometheus.CounterVec
	rpcErrors, bytes                 *prometheus.CounterVec
	rpc                              *prometheus.HistogramVec
	applied, failed, withheld        *prometheus.CounterVec // of loops
	coalesced, retries, drift, holds *prometheus.CounterVec
	propagation                      *prometheus.HistogramVec
	streams, events                  *prometheus.CounterVec // of xDS streams
	responses, requests, nacks       *prometheus.CounterVec
	pushes, restRequests             *prometheus.CounterVec // of what is served
	servedErrors, servedRefused      *prometheus.CounterVec
	servedResources, servedStreams   *prometheus.GaugeVec
	pushLatency                      *prometheus.HistogramVec
	configOK, configRead             *prometheus.GaugeVec
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
	m.applied = m.counter("changes_applied_total", "Entries written to a target.", "registry", "listen", "bridge", "op")
	m.failed = m.counter("changes_failed_total", "Writes to a target that failed; each is tried again.", "registry", "listen")
	m.withheld = m.counter("changes_withheld_total", "Times that something began not to be written, and why.", "registry", "listen", "bridge", "reason")
	m.coalesced = m.counter("events_coalesced_total", "Changes that joined one that was already due.", "registry", "listen")
	m.retries = m.counter("retries_total", "Groups that were put off after a failed call.", "registry", "listen")
	m.drift = m.counter("drift_found_total", "Readings of a target that differed from what had been written.", "registry", "listen")
	m.holds = m.counter("guard_holds_total", "Times that deletions began to be held back, or would have with guard.mode warn.", "registry", "listen", "bridge")
	m.rpcErrors = m.counter("rpc_errors_total", "Calls to a registry that failed.", "registry", "listen", "method", "code")
	m.propagation = m.histogram("propagation_duration_seconds", "From the first sight of a change to its write, without the mesh's own debounce.", "bridge")
	m.rpc = m.histogram("rpc_duration_seconds", "How long calls to a registry took.", "registry", "listen", "method")
	m.streams = m.counter("xds_streams_total", "xDS streams that were opened.", "registry")
	m.events = m.counter("events_received_total", "Resources or records that a source was sent.", "registry")
	m.responses = m.counter("xds_responses_total", "xDS responses received.", "registry", "type")
	m.requests = m.counter("xds_requests_total", "xDS requests sent, acknowledgements included.", "registry", "type")
	m.nacks = m.counter("xds_nacks_total", "xDS responses rejected, in part at least.", "registry", "type")
	m.bytes = m.counter("rpc_bytes_total", "Bytes of payload received from a registry.", "registry", "method")
	m.pushes = m.counter("mcp_pushes_total", "Sets of ServiceEntries that were put together for istiods.", "registry", "listen")
	m.servedErrors = m.counter("mcp_errors_total", "Answers that were refused, addresses that ran out, state files that could not be written.", "registry", "listen", "reason")
	m.servedRefused = m.counter("mcp_refused_total", "Clients at the address for istiod that were refused.", "registry", "listen", "reason")
	m.restRequests = m.counter("mcp_rest_requests_total", "Requests of data planes over REST.", "registry", "listen")
	m.servedResources = m.gauge("mcp_resources", "ServiceEntries in the set that is served.", "registry", "listen")
	m.servedStreams = m.gauge("mcp_streams", "Streams of istiods and data planes that are open, and connections over REST.", "registry", "listen")
	m.pushLatency = m.histogram("mcp_push_duration_seconds", "From the first change in a set until it was sent.", "registry", "listen")
	m.configOK = m.gauge("config_last_reload_successful", "Whether the configuration file, as it was read last, is what runs.")
	m.configRead = m.gauge("config_last_reload_success_timestamp_seconds", "When the configuration that runs was read.")
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

// Reloaded records whether a configuration that was read is what runs.
func (m *Metrics) Reloaded(ok bool) { //nolint:revive // an outcome, not a flag
	if !ok {
		m.configOK.WithLabelValues().Set(0)
		return
	}
	m.configOK.WithLabelValues().Set(1)
	m.configRead.WithLabelValues().SetToCurrentTime()
}

// Forget drops every series of a registry that is no longer in the configuration.
func (m *Metrics) Forget(name string) {
	for _, v := range m.vectors {
		v.DeletePartialMatch(prometheus.Labels{"registry": name})
	}
}

// ForgetListen drops the series of an address at which a mesh is no longer served.
func (m *Metrics) ForgetListen(registry, listen string) {
	for _, v := range m.vectors {
		v.DeletePartialMatch(prometheus.Labels{"registry": registry, "listen": listen})
	}
}

// ForgetSource drops the series of a registry as a source: it is no longer read,
// and still written to.
func (m *Metrics) ForgetSource(name string) {
	for _, v := range []vector{m.streams, m.events, m.responses, m.requests, m.nacks, m.bytes} {
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
