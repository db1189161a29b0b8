// Package mcp serves services of a registry to istiod, as a registry.Target. It is the
// MCP-over-xDS server that an istiod lists in `meshConfig.configSources`.
//
// istiod takes every response as the whole set: it deletes what is missing, and an empty
// response deletes everything. Therefore the served type is not answered before every
// bridge has reported everything once (SourcesComplete). While a registry is away, its
// last services stay served. istiod does not reject invalid entries, so
// metadata/serviceentry checks every entry first.
//
//	server, access            the listener: which clients may connect, and limits
//	stream, variant           the protocol of istiod's streams
//	dataplane                 the streams and REST requests of data planes
//	target, push              the served set, and when a new one replaces it
//	resource, vips            one ServiceEntry in wire format, and its address
//	persistence               persisting what is served for the next process
//	persistence_bucket        the format of a record
//	persistence_store         the records in one place, and their former name
//	persistence_dir           records in a directory instead of a registry
//
// Goroutines: Target.Run makes a new set and closes a channel; it waits for no stream,
// because each stream fetches the newest set itself. With PersistTo it runs one more
// goroutine that writes records. Each stream has its gRPC handler and one goroutine that
// speaks the protocol. An istiod's stream has one more that receives, and one while a
// response is being sent. A client that does not read a response within a minute is disconnected;
// until then it delays only its own stream.
package mcp
