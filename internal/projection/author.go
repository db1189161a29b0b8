package projection

import (
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Identities returns texts that identify bridges, and that do not depend on the owner.
func Identities(bridges []config.Bridge) []string {
	var all []string
	for _, x := range bridges {
		for _, f := range x.Formats {
			all = append(all, x.Name+" from "+x.From+" into "+f.Format+" "+f.Root)
		}
	}
	return all
}

// Author returns a function that returns the bridge that wrote an entry of this owner. It
// returns the name of the bridge or, if the bridge is not configured, its mark. A restart
// must not change these texts, because holds and their records contain them.
func Author(cfg *config.Config, at config.TargetKey) func(registry.Entry) string {
	r, bridgesByMark := cfg.Registries[at.Registry], make(map[string]config.Bridge)
	isMesh := cfg.Mesh(at.Registry) != nil // all bridges write the same location
	for _, x := range cfg.BridgesTo(at) {
		bridgesByMark[BridgeMark(x.Name)] = x
	}
	return func(e registry.Entry) string {
		m, err := metadata.MarkOf(e)
		if err != nil {
			return ""
		}
		mark := MarkPrefix + m.Bridge
		location := registry.Group{Kind: e.Group.Kind, Namespace: e.Group.Namespace, Group: e.Group.Group}
		switch x, known := bridgesByMark[mark]; {
		case !known:
			return mark
		case isMesh, Writes(r, x, location):
			return x.Name
		default:
			return x.Name + atLocation + location.String()
		}
	}
}

// Separators that cannot be in the name of a bridge, which has no colon and no space.
const (
	MarkPrefix = "mark:" // begins the mark of a bridge that is not configured
	atLocation = " at "  // between a bridge and a location that it does not write
)

// BridgeMark returns the mark of a bridge. The argument is its name or its mark.
func BridgeMark(name string) string {
	if strings.HasPrefix(name, MarkPrefix) {
		return name
	}
	return MarkPrefix + metadata.Fingerprint(name, metadata.BridgeLen)
}

// IsOfBridge reports whether an entry has the mark of a bridge. If the entry has no mark, the
// head of its group counts: the entry that is stored under registry.HeadKey.
func IsOfBridge(bridge string, e registry.Entry, stored []registry.Stored) bool {
	m, err := metadata.MarkOf(e)
	for _, s := range stored {
		if err != nil && s.Key == registry.HeadKey {
			m, err = metadata.MarkOf(s.Entry)
		}
	}
	return err == nil && MarkPrefix+m.Bridge == BridgeMark(bridge)
}

// SameBridge reports whether an author, as Author returns it, is a bridge with this name or
// mark.
func SameBridge(author, bridge string) bool {
	name, _, _ := strings.Cut(author, atLocation)
	return BridgeMark(name) == BridgeMark(bridge)
}
