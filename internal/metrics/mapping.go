package metrics

import (
	"errors"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// Mapping returns a sink for what the reader of the interface mapping
// observes. Peer is the mesh's name in the configuration.
func (m *Metrics) Mapping(peer string) func(debug.Observation) {
	return func(o debug.Observation) {
		method := "debug_" + oneOf(o.Query, "adsz", "connections", "client")
		m.target.rpc.WithLabelValues(peer, method).Observe(o.Duration.Seconds())
		m.stream.bytes.WithLabelValues(peer, method).Add(float64(o.Bytes))
		if o.Err == nil {
			return
		}
		code := "other"
		if e, ok := errors.AsType[*debug.Error](o.Err); ok {
			code = strings.ReplaceAll(string(e.Cause), " ", "_")
		}
		m.target.rpcErrors.WithLabelValues(peer, method, code).Inc()
	}
}
