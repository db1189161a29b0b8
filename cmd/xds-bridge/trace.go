package main

import (
	"slices"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// trace reads from entries of a bridge where they came from: the bridge from
// their mark and, where the source is a mesh, the service from its host address.
type trace struct {
	others []string // bridges to the same place, as marks call them
	mesh   bool
}

func (b *builder) trace(x config.Bridge, leading []config.Bridge) bridge.Trace {
	t := trace{mesh: b.cfg.Registries[x.From].Istiod != nil}
	for _, o := range leading {
		if o.Name != x.Name {
			t.others = append(t.others, metadata.Fingerprint(o.Name, metadata.BridgeLen))
		}
	}
	return t
}

// Origin implements bridge.Trace. An entry without a mark that can be read may
// be anybody's of ours, and so may one of a bridge that is gone: another may
// have taken its services over.
func (t trace) Origin(e registry.Entry) (registry.Name, bool) {
	if m, err := metadata.MarkOf(e); err == nil && slices.Contains(t.others, m.Bridge) {
		return "", false
	}
	if !t.mesh {
		return "", true
	}
	return registry.Name(metadata.HostOf(e)), true
}

// Service implements bridge.Trace.
func (t trace) Service(scope string) bool { return t.mesh && mesh.OneService(scope) }
