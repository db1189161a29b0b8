// Package dataplane serves ServiceEntries as xDS to data planes: Envoy, and gRPC
// without a proxy. It stores nothing but what follows from the entries, which
// are those that istiod is served.
//
// The protocol is go-control-plane's server. Its caches are not used: each of
// them looks at every resource on every change. Here a change wakes the
// streams, and each asks the store for what changed since its last answer.
package dataplane
