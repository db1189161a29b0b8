package metrics

import (
	"context"
	"errors"
	"slices"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Target returns a sink for the observations of the loop of a target. Name is the name of
// the registry in the configuration. Listen is the address at which a mesh is served, empty
// for other targets.
func (m *Metrics) Target(name, listen string) func(bridge.Observation) {
	return func(o bridge.Observation) {
		switch o.Kind {
		case bridge.ObservedCall:
			m.call(o, name, listen)
		case bridge.ObservedApplied:
			m.applied.WithLabelValues(name, listen, o.Bridge, oneOf(o.Op, entryOperations())).Add(float64(o.Count))
			if o.Latency > 0 {
				m.propagation.WithLabelValues(o.Bridge).Observe(o.Latency.Seconds())
			}
		case bridge.ObservedHold:
			m.holds.WithLabelValues(name, listen, o.Bridge).Inc()
			m.withheld.WithLabelValues(name, listen, o.Bridge, withheldByHold).Inc()
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
	method := oneOf(o.Op, targetMethods())
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
		return codeConflict
	case errors.Is(err, registry.ErrRefused):
		return codeRefused
	case errors.Is(err, context.DeadlineExceeded):
		return codeTimeout
	case errors.Is(err, context.Canceled):
		return codeCanceled
	default:
		return codeUnreachable
	}
}

// oneOf returns the value if it is in the set, otherwise "other", so that a label stays
// bounded.
func oneOf(value string, set []string) string {
	if slices.Contains(set, value) {
		return value
	}
	return other
}
