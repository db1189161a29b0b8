// Package nacos is a Nacos server in memory. It behaves like a real server where a
// bridge sees the difference: one publication for each connection and service,
// publications that end with their connection, reads that lag, acknowledged
// pushes, and tokens. It can also fail in ways that a real server cannot be made
// to fail.
//
// It is one server, stores nothing on disk and does not check the health of
// instances. Over HTTP it serves only logins and the list of namespaces. It starts
// no goroutines other than those of its listeners.
//
// The files:
//
//	server.go     the server, its settings and its listeners
//	requests.go   unary requests: the journal, authentication, dispatch
//	instances.go  what is stored, and what reads of it return
//	push.go       subscriptions and pushes
//	stream.go     connections and their streams
//	config.go     configurations
//	http.go       logins and namespaces
//	faults.go     failures that a test requests
package nacos
