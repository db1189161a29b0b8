package app

import (
	"fmt"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/registry"
)

// use is one format of one bridge, in the registry at one of its ends.
type use struct {
	bridge   config.Bridge
	format   config.Format
	registry string // where the format is read or written
}

// formatOptions returns how a bridge writes and reads a format.
func (b *builder) formatOptions(u use) format.Options {
	x, f := u.bridge, u.format
	o := format.Options{
		Root: f.Root, Documents: f.Metadata, Namespace: b.cfg.Registries[u.registry].Settings().Namespace, Group: f.Group,
		Service: f.Service, Join: b.joins(u), Protocol: f.Protocol,
		Mark: metadata.NewMark(b.cfg.Owner, x.Name), Subsets: b.kind(x.From).abilities().subsets, Tags: f.Tags, Reserve: b.reserve(),
	}
	for _, r := range x.Names {
		o.Names = append(o.Names, format.Name{Host: r.Host, Port: r.Port, Service: r.Service, Protocol: r.Protocol})
	}
	for _, r := range f.Rules {
		o.Protocols = append(o.Protocols, format.ProtocolRule(r))
	}
	return o
}

// joins reports whether several services may share a plain name where a format
// is written: where it says so, or where a registry is copied, in which one
// name is one service whatever parts it is told in. In a mesh one name may be
// two services, of two namespaces.
func (b *builder) joins(u use) bool {
	at := u.place(b.cfg.Registries[u.registry])
	for _, x := range b.cfg.Bridges {
		for _, f := range x.Formats {
			other := use{bridge: x, format: f, registry: x.To}
			if x.To == u.registry && other.place(b.cfg.Registries[x.To]) == at && (f.Join || !b.kind(x.From).abilities().hosts) {
				return true
			}
		}
	}
	return false
}

// place is where a use of a format lies in its registry: uses of one place
// are one layout.
func (u use) place(in config.Registry) string {
	at := placed(in, u.format)
	return at.kind + " " + at.namespace + " " + at.group + " " + u.format.Service
}

// readings returns the formats in which bridges read a registry, each place
// once.
func (b *builder) readings(name string) []use {
	var all []use
	seen := make(map[string]bool)
	for _, x := range b.cfg.Bridges {
		if x.From != name {
			continue
		}
		for _, f := range x.Read() {
			u := use{bridge: x, format: f, registry: name}
			if at := u.place(b.cfg.Registries[name]); !seen[at] {
				seen[at] = true
				all = append(all, u)
			}
		}
	}
	return all
}

// A placedUse is a format with its first use.
type placedUse[T any] struct {
	use
	codec T
}

// written makes the formats in which bridges write a registry: the codecs of
// each bridge, and each place once, former ones last.
func written[T metadata.Codec](b *builder, name string, bridges []config.Bridge, former []use, how func(use) (T, error)) (codecs [][]metadata.Encoder, places []placedUse[T], err error) {
	seen := make(map[string]bool)
	for _, x := range bridges {
		var own []metadata.Encoder
		for _, f := range x.Formats {
			u := use{bridge: x, format: f, registry: name}
			c, err := how(u)
			if err != nil {
				return nil, nil, fmt.Errorf("bridge %s: %w", x.Name, err)
			}
			own = append(own, c)
			if at := u.place(b.cfg.Registries[name]); !seen[at] { // bridges may share a place, which has one layout
				seen[at] = true
				places = append(places, placedUse[T]{u, c})
			}
		}
		codecs = append(codecs, own)
	}
	for _, u := range former {
		c, err := how(u)
		if err != nil {
			return nil, nil, fmt.Errorf("bridge %s, as it was: %w", u.bridge.Name, err)
		}
		if at := u.place(b.cfg.Registries[name]); !seen[at] {
			seen[at] = true
			places = append(places, placedUse[T]{u, c})
		}
	}
	return codecs, places, nil
}

// formOf makes the codec of a format for a kind of registry, with the methods of F.
func formOf[F metadata.Codec](b *builder, u use, kind string) (F, error) {
	d, _ := formats.Find(u.format.Format)
	return format.Codec[F](d, kind, b.formatOptions(u))
}

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
	if s := r.Settings(); s.Layout == config.InGroups {
		return place{f.Format, s.Namespace, f.Group}
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
