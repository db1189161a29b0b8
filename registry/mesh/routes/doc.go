// Package routes reads how the mesh divides the calls to a service: which
// requests, distinguished by path and headers, go to which subsets and in which
// proportion. It asks istiod as a proxyless client does, host by host, over a
// stream of its own. What it cannot express it leaves out and says so; it never
// guesses.
package routes
