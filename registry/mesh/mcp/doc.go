// Package mcp serves services of a registry to istiod, as a registry.Target: it
// is the MCP-over-xDS server that istiod has in `meshConfig.configSources`.
//
// To istiod every answer is the whole set: what is missing is deleted, and an
// empty answer deletes everything. So the served type is not answered before
// every bridge has reported everything once (SourcesComplete). What was served
// is kept while a registry is away. istiod refuses nothing that it is sent, so
// metadata/serviceentry checks all of it first.
//
// Each stream looks for the newest set itself: a push replaces the set and waits
// for no stream. A client that does not read an answer within a minute is
// disconnected, and delays only its own stream until then.
package mcp
