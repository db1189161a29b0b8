package metrics

import (
	"context"
	"errors"
	"slices"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Target returns a sink for what a loop observes. Listen is the address at which a mesh is
// served, and empty for all others.
func (m *Metrics) Target(registry, listen string) func(bridge.Observation) {
	return func(o bridge.Observation) {
		switch o.Kind {
		case bridge.ObservedCall:
			m.call(o, registry, listen)
		case bridge.ObservedApplied:
			m.applied.WithLabelValues(registry, listen, o.Bridge, oneOf(o.Op, "create", "update", "delete")).Add(float64(o.Count))
			if o.Latency > 0 {
				m.propagation.WithLabelValues(o.Bridge).Observe(o.Latency.Seconds())
			}
		case bridge.ObservedHold:
			m.holds.WithLabelValues(registry, listen, o.Bridge).Inc()
			m.withheld.WithLabelValues(registry, listen, o.Bridge, "hold").Inc()
		case bridge.ObservedConflict, bridge.ObservedUnwritable:
			m.withheld.WithLabelValues(registry, listen, o.Bridge, string(o.Kind)).Inc()
		case bridge.ObservedDrift:
			m.drift.WithLabelValues(registry, listen).Inc()
		case bridge.ObservedCoalesce:
			m.coalesced.WithLabelValues(registry, listen).Inc()
		case bridge.ObservedRetry:
			m.retries.WithLabelValues(registry, listen).Inc()
		}
	}
}

func (m *Metrics) call(o bridge.Observation, registry, listen string) {
	method := oneOf(o.Op, "list", "read", "write")
	m.rpc.WithLabelValues(registry, listen, method).Observe(o.Took.Seconds())
	if o.Err == nil {
		return
	}
	m.rpcErrors.WithLabelValues(registry, listen, method, nacosCode(o.Err)).Inc()
	if method == "write" {
		m.failed.WithLabelValues(registry, listen).Inc()
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
