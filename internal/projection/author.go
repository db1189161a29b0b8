package projection

import (
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Identities name bridges so that they are known again under another owner.
func Identities(bridges []config.Bridge) []string {
	var all []string
	for _, x := range bridges {
		for _, f := range x.Formats {
			all = append(all, x.Name+" from "+x.From+" into "+f.Format+" "+f.Root)
		}
	}
	return all
}

// Author returns a function that names the bridge of an entry of ours in a target.
// Holds and their records bear that name, so that a restart must not change it:
// of a bridge that is not configured only the mark is known then.
func Author(cfg *config.Config, at config.TargetKey) func(registry.Entry) string {
	r, leading := cfg.Registries[at.Registry], make(map[string]config.Bridge)
	isMesh := cfg.Mesh(at.Registry) != nil // which has one place for all
	for _, x := range cfg.BridgesTo(at) {
		leading[BridgeMark(x.Name)] = x
	}
	return func(e registry.Entry) string {
		m, err := metadata.MarkOf(e)
		if err != nil {
			return ""
		}
		mark, p := MarkPrefix+m.Bridge, registry.Group{Kind: e.Group.Kind, Namespace: e.Group.Namespace, Group: e.Group.Group}
		switch x, known := leading[mark]; {
		case !known:
			return mark
		case isMesh, Writes(r, x, p):
			return x.Name
		default:
			return x.Name + atPlace + p.String()
		}
	}
}

// No name of a bridge holds a colon or a space.
const (
	MarkPrefix = "mark:" // before the mark of a bridge that is not configured
	atPlace    = " at "  // between a bridge and a location that it does not write
)

// BridgeMark returns the mark of a bridge, which may be given by its name or by its mark.
func BridgeMark(name string) string {
	if strings.HasPrefix(name, MarkPrefix) {
		return name
	}
	return MarkPrefix + metadata.Fingerprint(name, metadata.BridgeLen)
}

// IsOfBridge reports whether an entry bears the mark of a bridge or, without one, its head
// does: what the group holds under registry.HeadKey.
func IsOfBridge(bridge string, e registry.Entry, held []registry.Stored) bool {
	m, err := metadata.MarkOf(e)
	for _, h := range held {
		if err != nil && h.Key == registry.HeadKey {
			m, err = metadata.MarkOf(h.Entry)
		}
	}
	return err == nil && MarkPrefix+m.Bridge == BridgeMark(bridge)
}

// SameBridge reports whether entries of an author are those of a bridge.
func SameBridge(author, bridge string) bool {
	name, _, _ := strings.Cut(author, atPlace)
	return BridgeMark(name) == BridgeMark(bridge)
}
