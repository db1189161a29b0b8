package metrics

import (
	"context"
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// targetMetrics count what loops report.
type targetMetrics struct {
	up, contact               *prometheus.GaugeVec
	applied, failed, skipped  *prometheus.CounterVec
	coalesced, retries, drift *prometheus.CounterVec
	holds, rpcErrors          *prometheus.CounterVec
	propagation, rpc          *prometheus.HistogramVec
}

func newTargetMetrics(m *Metrics) targetMetrics {
	return targetMetrics{
		up:          m.gauge("registry_up", "Whether the connection to a registry is up, and the last call over it succeeded.", "registry", "kind", "direction"),
		contact:     m.gauge("registry_last_contact_timestamp_seconds", "When a registry last answered.", "registry", "kind", "direction"),
		applied:     m.counter("changes_applied_total", "Entries written to a target.", "registry", "bridge", "op"),
		failed:      m.counter("changes_failed_total", "Writes to a target that failed; each is tried again.", "registry"),
		skipped:     m.counter("changes_skipped_total", "Times that something began not to be written, and why.", "registry", "bridge", "reason"),
		coalesced:   m.counter("events_coalesced_total", "Changes that joined one that was already due.", "registry"),
		retries:     m.counter("retries_total", "Groups that were put off after a failed call.", "registry"),
		drift:       m.counter("drift_found_total", "Readings of a target that differed from what had been written.", "registry"),
		holds:       m.counter("guard_holds_total", "Times that deletions began to be held back, or would have with guard.mode warn.", "registry", "bridge"),
		rpcErrors:   m.counter("rpc_errors_total", "Calls to a registry that failed.", "registry", "method", "code"),
		propagation: m.histogram("propagation_duration_seconds", "From the first sight of a change to its write, without the mesh's own debounce.", "route"),
		rpc:         m.histogram("rpc_duration_seconds", "How long calls to a registry took.", "registry", "method"),
	}
}

// Target returns a sink for what a loop observes. Name is the target's name
// in the configuration, kind what it is, such as zookeeper.
func (m *Metrics) Target(name, kind string) func(bridge.Observation) {
	t := m.target
	return func(o bridge.Observation) {
		switch o.Kind {
		case bridge.ObservedCall:
			t.call(o, name, kind)
		case bridge.ObservedApplied:
			t.applied.WithLabelValues(name, o.Bridge, oneOf(o.Op, "create", "update", "delete")).Add(float64(o.Count))
			if o.Latency > 0 {
				t.propagation.WithLabelValues(o.Bridge).Observe(o.Latency.Seconds())
			}
		case bridge.ObservedHold:
			t.holds.WithLabelValues(name, o.Bridge).Inc()
			t.skipped.WithLabelValues(name, o.Bridge, "hold").Inc()
		case bridge.ObservedConflict, bridge.ObservedInvalid:
			t.skipped.WithLabelValues(name, o.Bridge, string(o.Kind)).Inc()
		case bridge.ObservedDrift:
			t.drift.WithLabelValues(name).Inc()
		case bridge.ObservedCoalesce:
			t.coalesced.WithLabelValues(name).Inc()
		case bridge.ObservedRetry:
			t.retries.WithLabelValues(name).Inc()
		}
	}
}

func (t targetMetrics) call(o bridge.Observation, name, kind string) {
	method := oneOf(o.Op, "list", "read", "write")
	t.rpc.WithLabelValues(name, method).Observe(o.Took.Seconds())
	up := t.up.WithLabelValues(name, kind, "target")
	if o.Err == nil {
		up.Set(1)
		t.contact.WithLabelValues(name, kind, "target").SetToCurrentTime()
		return
	}
	code := nacosCode(o.Err)
	if code != "conflict" && code != "refused" && code != "denied" { // those are answers
		up.Set(0)
	}
	t.rpcErrors.WithLabelValues(name, method, code).Inc()
	if method == "write" {
		t.failed.WithLabelValues(name).Inc()
	}
}

func errorCode(err error) string {
	switch {
	case errors.Is(err, registry.ErrConflict):
		return "conflict"
	case errors.Is(err, registry.ErrRefused):
		return "refused"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return "unreachable"
	}
}

// oneOf returns a value if it is one of a fixed set, so that a label stays bounded.
func oneOf(value string, set ...string) string {
	if slices.Contains(set, value) {
		return value
	}
	return "other"
}
