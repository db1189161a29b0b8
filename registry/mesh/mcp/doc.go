// Package mcp serves services of a registry to istiod: the MCP-over-xDS server
// that istiod names in `meshConfig.configSources`, as a registry.Target.
//
// istiod takes every answer for the whole set: what is missing is deleted, an
// empty answer deletes everything. So nothing is answered for a type of ours
// before every bridge told of everything once (Settled), and what was served
// goes on being served while a registry is away. istiod refuses nothing that
// it is sent, hence all of it is checked by metadata/serviceentry first.
//
// The streams are those of go-control-plane's server with a ConfigWatcher of
// our own, because its caches cannot serve these types.
package mcp
