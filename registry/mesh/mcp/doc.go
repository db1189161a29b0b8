// Package mcp serves services of a registry to istiod: the MCP-over-xDS server
// that istiod names in `meshConfig.configSources`, as a registry.Target.
//
// istiod takes every answer for the whole set: what is missing is deleted, an
// empty answer deletes everything. So nothing is answered for the type that is served
// before every bridge reported everything once (SourcesComplete), and what was served
// continues being served while a registry is away. istiod refuses nothing that
// it is sent, hence all of it is checked by metadata/serviceentry first.
//
// Each stream looks for the newest set itself: a push puts it in place and
// waits for nobody. A client that does not read an answer within a minute is
// disconnected, and costs only its own stream until then.
package mcp
