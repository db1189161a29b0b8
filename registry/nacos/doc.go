// Package nacos reads and writes Nacos servers of version 2 and 3 over their
// gRPC protocol, with the message types of nacos-sdk-go over connections of
// its own.
//
// The SDK's client is not used. It reports a refused or throttled read as an
// empty list without an error, which would look as if everything were gone. It
// opens an unauthenticated UDP port, writes files, keeps state for the whole
// process and leaks goroutines when it is closed.
//
// A connection of Nacos holds exactly one publication per service, and every
// registration replaces it. So a Target writes the whole set of a service in
// one batch, and what it wrote exists as long as its connection.
package nacos
