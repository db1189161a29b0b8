package app

import (
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A place is where entries of one format lie in a registry, as every group
// there tells it: whatever its order in the file and however its registry is
// reached.
type place struct {
	kind      string // the format
	namespace string // ZooKeeper: the root; Nacos: the namespace id
	group     string // Nacos: the group
}

func (p place) String() string {
	return registry.Group{Kind: p.kind, Namespace: p.namespace, Group: p.group}.String()
}

// placeOf returns where a group lies.
func placeOf(g registry.Group) place { return place{g.Kind, g.Namespace, g.Group} }

// placed returns where a bridge writes a format.
func placed(r config.Registry, f config.Format) place {
	if r.Nacos != nil {
		return place{f.Format, r.Nacos.Namespace, f.Group}
	}
	return place{kind: f.Format, namespace: f.Root}
}

// writes reports whether a bridge writes a place.
func writes(r config.Registry, x config.Bridge, at place) bool {
	return slices.ContainsFunc(x.Formats, func(f config.Format) bool { return placed(r, f) == at })
}

// former returns the formats that bridges wrote at an end before and write no
// more, each under its bridge: the loop still looks there, so that what they
// left is held until a person decides.
func (b *builder) former(at sinkKey, old *sink) []use {
	r := b.cfg.Registries[at.registry]
	if old == nil || at.listen != "" {
		return nil
	}
	all := slices.Clone(old.former)
	for _, x := range leadingTo(b.before.cfg, at) {
		for _, f := range x.Formats {
			all = append(all, use{bridge: x, format: f, registry: at.registry})
		}
	}
	seen := make(map[place]bool)
	for _, x := range leadingTo(b.cfg, at) {
		for _, f := range x.Formats {
			seen[placed(r, f)] = true
		}
	}
	return slices.DeleteFunc(all, func(u use) bool {
		p := placed(r, u.format)
		covered := seen[p]
		seen[p] = true
		return covered
	})
}
