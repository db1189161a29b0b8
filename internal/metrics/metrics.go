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

// Prefix is the prefix of all our metrics.
const Prefix = "xdsbridge_"

// Build identifies the program that runs.
type Build struct{ Version, Revision string }

// Metrics is one set of metrics with a registry of its own. It is safe for
// concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	defined  []Definition
	vectors  []vector

	// Registries.
	limits           *prometheus.GaugeVec
	sessions, logins *prometheus.CounterVec
	rpcErrors, bytes *prometheus.CounterVec
	rpc              *prometheus.HistogramVec

	// Loops of targets.
	applied, failed, withheld        *prometheus.CounterVec
	coalesced, retries, drift, holds *prometheus.CounterVec
	propagation                      *prometheus.HistogramVec

	// xDS streams.
	streams, events            *prometheus.CounterVec
	responses, requests, nacks *prometheus.CounterVec

	// The served mesh.
	pushes, restRequests           *prometheus.CounterVec
	servedErrors, servedRefused    *prometheus.CounterVec
	servedResources, servedStreams *prometheus.GaugeVec
	pushLatency                    *prometheus.HistogramVec

	// The configuration.
	configOK, configRead *prometheus.GaugeVec
}

// Definition describes one metric.
type Definition struct {
	Name, Type, Help string
	Labels           []string
	Values           map[string][]string // all values of the labels that have a fixed set
	Query            Query               // that the metric is for
}

// New returns metrics in which nothing has been counted yet.
func New(b Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gauge("build_info", "The version that runs; always 1.", "version", "revision", "go_version").
		WithLabelValues(b.Version, b.Revision, runtime.Version()).Set(1)
	m.sessions = m.counter("sessions_lost_total",
		"Sessions and streams that were lost, not closed by the bridge.", "registry")
	m.logins = m.counter("logins_total", "Logins to a registry, by result.", "registry", "result")
	m.limits = m.gauge("limit_usage_ratio",
		"The part of a registry's limit that the largest group uses; 1 is the limit.", "registry", "limit")
	m.applied = m.counter("changes_applied_total",
		"Entries created, updated or deleted in a target.", "registry", "listen", "bridge", "op")
	m.failed = m.counter("changes_failed_total",
		"Writes to a target that failed. Each is retried.", "registry", "listen")
	m.withheld = m.counter("changes_withheld_total",
		"Writes that began to be withheld, by reason.", "registry", "listen", "bridge", "reason")
	m.coalesced = m.counter("events_coalesced_total",
		"Changes that were merged into a pending change of the same group.", "registry", "listen")
	m.retries = m.counter("retries_total", "Retries of groups after a failed call.", "registry", "listen")
	m.drift = m.counter("drift_found_total",
		"Reads of a target that differed from what the bridge had written.", "registry", "listen")
	m.holds = m.counter("guard_holds_total",
		"Holds that began. With guard.mode warn: holds that would have begun.", "registry", "listen", "bridge")
	m.rpcErrors = m.counter("rpc_errors_total",
		"Calls to a registry that failed, by code.", "registry", "listen", "method", "code")
	m.propagation = m.histogram("propagation_duration_seconds",
		"Time from the arrival of a change to its write. The debounce of istiod is not included.", "bridge")
	m.rpc = m.histogram("rpc_duration_seconds", "Duration of calls to a registry.", "registry", "listen", "method")
	m.streams = m.counter("xds_streams_total", "xDS streams opened.", "registry")
	m.events = m.counter("events_received_total", "Resources received over xDS.", "registry")
	m.responses = m.counter("xds_responses_total", "xDS responses received.", "registry", "type")
	m.requests = m.counter("xds_requests_total", "xDS requests sent, acknowledgements included.", "registry", "type")
	m.nacks = m.counter("xds_nacks_total", "xDS responses rejected, in whole or in part.", "registry", "type")
	m.bytes = m.counter("rpc_bytes_total", "Bytes of payload received from a registry.", "registry", "method")
	m.pushes = m.counter("mcp_pushes_total",
		"Sets of ServiceEntries that were pushed to istiod and data planes.", "registry", "listen")
	m.servedErrors = m.counter("mcp_errors_total",
		"Errors while serving: rejected responses, exhausted virtual addresses, records that could not be stored.",
		"registry", "listen", "reason")
	m.servedRefused = m.counter("mcp_refused_total",
		"Clients that were refused at a listen address, by reason.", "registry", "listen", "reason")
	m.restRequests = m.counter("mcp_rest_requests_total", "REST requests of data planes.", "registry", "listen")
	m.servedResources = m.gauge("mcp_resources", "ServiceEntries in the served set.", "registry", "listen")
	m.servedStreams = m.gauge("mcp_streams",
		"Open streams of istiod and data planes, and open REST connections.", "registry", "listen")
	m.pushLatency = m.histogram("mcp_push_duration_seconds",
		"Time from the first change of a set until it was pushed.", "registry", "listen")
	m.configOK = m.gauge("config_last_reload_successful", "Whether the configuration that was read last was applied.")
	m.configRead = m.gauge("config_last_reload_success_timestamp_seconds", "When the running configuration was read.")
	return m
}

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, MaxRequestsInFlight: 4})
}

// Definitions returns all our metrics, sorted by name.
func (m *Metrics) Definitions() []Definition {
	all := slices.Clone(m.defined)
	slices.SortFunc(all, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// LimitUsage records how much of a limit of a registry is used. Limits that are not in
// limits() are counted as "other".
func (m *Metrics) LimitUsage(name, limit string, ratio float64) {
	m.limits.WithLabelValues(name, oneOf(limit, limits())).Set(ratio)
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

// buckets reach from a millisecond, which a change takes at best, to a minute, which no
// change should take.
func buckets() []float64 {
	return []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}
}

func (m *Metrics) define(kind, name, help string, labels []string) {
	values := make(map[string][]string)
	for _, l := range labels {
		if all := valuesOf(name, l); len(all) > 0 {
			values[l] = all
		}
	}
	m.defined = append(m.defined, Definition{Prefix + name, kind, help, labels, values, queryOf(name)})
}

// Reloaded records whether the configuration that was read last was applied.
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

// ForgetSource drops the series of a registry as a source: it is no longer read, but
// still written to.
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
