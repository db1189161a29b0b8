// Package admin serves what the bridge is doing, over two HTTP listeners. Probes
// and metrics may be reached from the network. The API, which also decides about holds,
// may be reached only from this host, or with TLS and a token. The package knows loops
// and tables, but no adapter.
//
//	admin.go       Server: the two listeners, and what they need to know
//	listener.go    addresses and sockets, and the checks of each request
//	probes.go      /livez, /readyz, /startupz and /metrics
//	api.go         the paths of the API, and the answers to status, services and reload
//	decide.go      approval and denial of holds
//	document.go    the JSON types of the API
//	reporter.go    the state of loops and tables as these types
//	conditions.go  conditions, their events and their log lines
//	events.go      the latest events of each kind
//	why.go         everything that is known of one service
package admin
