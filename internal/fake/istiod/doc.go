// Package istiod is an istiod without a mesh: an aggregated discovery server
// that holds whatever resources it is given and speaks exactly as istiod does, in
// both variants. It ignores stale nonces and the names beside them, pushes
// endpoints one by one, answers unknown endpoints with empty ones, and refuses
// clients as istiod would. Its faults make it break in the modes that have been
// seen. It is the demo's mesh and the tests' counterpart.
//
// It watches no cluster and computes no resources. The debug API shows the clients
// that it is given.
//
// The rules are those of istio's pkg/xds/server.go and pilot/pkg/xds/delta.go as
// of August 2026.
package istiod
