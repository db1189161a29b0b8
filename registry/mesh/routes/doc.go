// Package routes reads how the mesh divides the calls to a service: which requests, by path
// and headers, go to which subsets, and in which proportion. It requests routes from istiod
// as a proxyless client does, host by host, over a stream of its own. A route that a Table
// cannot express is left out and listed in Table.Left; nothing is guessed.
package routes
