// Package istiod is an istiod without a mesh: an aggregated discovery server for
// arbitrary resources that follows istiod's protocol exactly, in both variants. It
// ignores stale nonces and the names in requests that have them, pushes endpoints
// one by one, answers unknown endpoints with empty ones, and rejects clients as
// istiod does. Its faults are failures that were observed. The demo uses it as its
// mesh, and tests as their counterpart.
//
// It does not watch a cluster and does not compute resources. The debug API shows
// the connected clients.
//
// The rules are those of istio's pkg/xds/server.go and pilot/pkg/xds/delta.go as
// of August 2026.
package istiod
