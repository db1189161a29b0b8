package metrics

import (
	"context"
	"errors"
	"slices"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Target returns a sink for what a loop observes. Name is the target's name
// in the configuration, kind what it is, such as zookeeper.
func (m *Metrics) Target(name, kind string) func(bridge.Observation) {
	return func(o bridge.Observation) {
		switch o.Kind {
		case bridge.ObservedCall:
			m.call(o, name, kind)
		case bridge.ObservedApplied:
			m.applied.WithLabelValues(name, o.Bridge, oneOf(o.Op, "create", "update", "delete")).Add(float64(o.Count))
			if o.Latency > 0 {
				m.propagation.WithLabelValues(o.Bridge).Observe(o.Latency.Seconds())
			}
		case bridge.ObservedHold:
			m.holds.WithLabelValues(name, o.Bridge).Inc()
			m.withheld.WithLabelValues(name, o.Bridge, "hold").Inc()
		case bridge.ObservedConflict, bridge.ObservedUnwritable:
			m.withheld.WithLabelValues(name, o.Bridge, string(o.Kind)).Inc()
		case bridge.ObservedDrift:
			m.drift.WithLabelValues(name).Inc()
		case bridge.ObservedCoalesce:
			m.coalesced.WithLabelValues(name).Inc()
		case bridge.ObservedRetry:
			m.retries.WithLabelValues(name).Inc()
		}
	}
}

func (m *Metrics) call(o bridge.Observation, name, kind string) {
	method := oneOf(o.Op, "list", "read", "write")
	m.rpc.WithLabelValues(name, method).Observe(o.Took.Seconds())
	up := m.up.WithLabelValues(name, kind, "target")
	if o.Err == nil {
		up.Set(1)
		m.contact.WithLabelValues(name, kind, "target").SetToCurrentTime()
		return
	}
	code := nacosCode(o.Err)
	if code != "conflict" && code != "refused" && code != "denied" { // those are answers
		up.Set(0)
	}
	m.rpcErrors.WithLabelValues(name, method, code).Inc()
	if method == "write" {
		m.failed.WithLabelValues(name).Inc()
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
