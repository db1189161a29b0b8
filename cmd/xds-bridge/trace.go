package main

import (
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// trace reads from an entry which service it was written for: where the source
// is a mesh, from its host address.
type trace struct{ mesh bool }

// Origin implements bridge.Trace.
func (t trace) Origin(e registry.Entry) registry.Name {
	if !t.mesh {
		return ""
	}
	return registry.Name(metadata.HostOf(e))
}

// Service implements bridge.Trace.
func (t trace) Service(scope string) bool { return t.mesh && mesh.OneService(scope) }
