// Package dataplane serves ServiceEntries as xDS to data planes: to Envoy, and to gRPC
// without a proxy. Its resources are derived only from the entries that are served to
// istiod, and from Rules.
//
//	server                               entries, and what a change of them updates
//	cluster, listener                    the resources derived from an entry or a port
//	rules, rules_check, rules_match      DestinationRules and VirtualServices from a file
//	store                                all resources, by revision
//	view                                 which of them one stream has, and has to get
//	stream                               the streams and REST requests, and their limits
//
// go-control-plane's server speaks the protocol. Its caches are not used, because each of
// them looks at every resource on every change. Here a change wakes the streams, and each
// stream asks the store for the changes since its last response.
//
// The package starts no goroutines, except timers: a stream is served in the goroutine of
// its caller.
package dataplane
