package metrics

import (
	"context"
	"errors"
	"slices"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Target returns a sink for what a loop observes. Name is the
// registry's name in the configuration, listen the address at which a mesh is served; it is
// empty for all others.
func (m *Metrics) Target(name, listen string) func(bridge.Observation) {
	return func(o bridge.Observation) {
		switch o.Kind {
		case bridge.ObservedCall:
			m.call(o, name, listen)
		case bridge.ObservedApplied:
			m.applied.WithLabelValues(name, listen, o.Bridge, oneOf(o.Op, "create", "update", "delete")).Add(float64(o.Count))
			if o.Latency > 0 {
				m.propagation.WithLabelValues(o.Bridge).Observe(o.Latency.Seconds())
			}
		case bridge.ObservedHold:
			m.holds.WithLabelValues(name, listen, o.Bridge).Inc()
			m.withheld.WithLabelValues(name, listen, o.Bridge, "hold").Inc()
		case bridge.ObservedConflict, bridge.ObservedUnwritable:
			m.withheld.WithLabelValues(name, listen, o.Bridge, string(o.Kind)).Inc()
		case bridge.ObservedDrift:
			m.drift.WithLabelValues(name, listen).Inc()
		case bridge.ObservedCoalesce:
			m.coalesced.WithLabelValues(name, listen).Inc()
		case bridge.ObservedRetry:
			m.retries.WithLabelValues(name, listen).Inc()
		}
	}
}

func (m *Metrics) call(o bridge.Observation, name, listen string) {
	method := oneOf(o.Op, "list", "read", "write")
	m.rpc.WithLabelValues(name, listen, method).Observe(o.Took.Seconds())
	if o.Err == nil {
		return
	}
	m.rpcErrors.WithLabelValues(name, listen, method, nacosCode(o.Err)).Inc()
	if method == "write" {
		m.failed.WithLabelValues(name, listen).Inc()
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
