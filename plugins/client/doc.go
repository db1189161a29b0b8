// Package client is a registry as an application uses it. An application
// registers its own instances and finds those of others, in the mesh, in
// ZooKeeper or in Nacos. Names and formats are those of the bridge. The plugins of RPC frameworks are thin adapters of this package.
//
// A Client owns what it starts, and Close ends it. Several clients may
// live in one process; they share nothing. Only the methods that say so wait
// for the network, and none gives up: a registry that is down at the start is
// connected to once it is up. While a registry is unreachable, the endpoints
// that were known stay known.
//
// The files:
//
//	backend.go           what a registry provides to a Client
//	url.go, formats.go   a Backend from a URL, and the format of its instances
//	client.go            Client: its parts, from New to Close
//	options.go           Options and their defaults
//	registration.go      Register, Deregister and WaitVisible
//	lookup.go            Resolve, and the answer to a query as it is known now
//	watch.go             Watch: the answers to one query over time
//	status.go            Status: the problems of a client
//	query.go             Query: what a consumer looks for
//	instance.go          Instance: what a process provides
//	endpoint.go          Endpoint, with its weight.go, and snapshot.go: an answer
//	index.go             the table of the source, by query
//	doubts.go            endpoints that were known before an outage and are unconfirmed
//	state.go             the state file: the last known answers
//	target_publisher.go  a Publisher that writes to a registry.Target
//	publication.go       one run of it: the entries and when they are written (also
//	                     group_set.go and provision.go)
//	errors.go            the causes that an application may want to distinguish
package client
