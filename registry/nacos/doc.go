// Package nacos writes to Nacos servers of version 2 and 3 over their gRPC
// protocol, with the message types of nacos-sdk-go and a connection of our
// own under them.
//
// The SDK's client is not used: it reports a refused or throttled read as an
// empty list without an error, which a bridge would take for "everything has
// gone", opens an unauthenticated UDP port, writes files, keeps state for the
// whole process and leaks goroutines when it is closed.
//
// A Nacos connection holds exactly one publication per service, and every
// registration replaces it. So a Target writes the whole set of a service in
// one batch, and what it wrote lives as long as its connection.
package nacos
