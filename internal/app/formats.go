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

// formatUse is one format of one bridge, in the registry at one of its ends.
type formatUse struct {
	bridge   config.Bridge
	format   config.Format
	registry string // where the format is read or written
}

// formatOptions returns how a bridge writes and reads a format.
func formatOptions(b *builder, u formatUse) format.Options {
	cfg, x, f := b.cfg, u.bridge, u.format
	o := format.Options{
		Root: f.Root, Documents: f.Metadata, Namespace: cfg.Registries[u.registry].Settings().Namespace, Group: f.Group,
		Service: f.Service, Join: sharesName(cfg, u), Protocol: f.Protocol,
		Mark: metadata.NewMark(cfg.Owner, x.Name), Subsets: cfg.Registries[x.From].Settings().Subsets, Tags: f.Tags,
	}
	if b.signer != nil {
		o.Reserve = metadata.SignedLen
	}
	for _, r := range x.Names {
		o.Names = append(o.Names, format.Name{Host: r.Host, Port: r.Port, Service: r.Service, Protocol: r.Protocol})
	}
	for _, r := range f.Rules {
		o.Protocols = append(o.Protocols, format.ProtocolRule(r))
	}
	return o
}

// sharesName reports whether several services may share a plain name where a format
// is written: if it says so, or if a registry is copied, in which one
// name is one service, in one or several parts. In a mesh one name may be
// two services, of two namespaces.
func sharesName(cfg *config.Config, u formatUse) bool {
	at := u.layoutKey(cfg)
	for _, x := range cfg.Bridges {
		for _, f := range x.Formats {
			other := formatUse{bridge: x, format: f, registry: x.To}
			if x.To == u.registry && other.layoutKey(cfg) == at && (f.Join || meshIn(cfg, x.From) == nil) {
				return true
			}
		}
	}
	return false
}

// layoutKey is a text for where a format lies in its registry: those of one text
// are one layout.
func (u formatUse) layoutKey(cfg *config.Config) string {
	at := locationOf(cfg.Registries[u.registry], u.format)
	return at.kind + " " + at.namespace + " " + at.group + " " + u.format.Service
}

// readings returns the formats in which bridges read a registry, each location
// once.
func readings(cfg *config.Config, name string) []formatUse {
	var all []formatUse
	seen := make(map[string]bool)
	for _, x := range cfg.Bridges {
		if x.From != name {
			continue
		}
		for _, f := range x.Read() {
			u := formatUse{bridge: x, format: f, registry: name}
			if at := u.layoutKey(cfg); !seen[at] {
				seen[at] = true
				all = append(all, u)
			}
		}
	}
	return all
}

// A codecUse is the codec of a format with its first use.
type codecUse[T any] struct {
	formatUse
	codec T
}

// makeCodecs makes the formats in which bridges write a registry: the codecs of
// each bridge, and one use for each layout key, former ones last.
func makeCodecs[T metadata.Codec](b *builder, name, kind string, bridges []config.Bridge, former []formatUse) (codecs [][]metadata.Encoder, uses []codecUse[T], err error) {
	seen := make(map[string]bool)
	add := func(u formatUse, c T) {
		if at := u.layoutKey(b.cfg); !seen[at] { // bridges may share a location, which has one layout
			seen[at] = true
			uses = append(uses, codecUse[T]{u, c})
		}
	}
	for _, x := range bridges {
		var own []metadata.Encoder
		for _, f := range x.Formats {
			u := formatUse{bridge: x, format: f, registry: name}
			c, err := newCodec[T](b, u, kind)
			if err != nil {
				return nil, nil, fmt.Errorf("bridge %s: %w", x.Name, err)
			}
			own = append(own, c)
			add(u, c)
		}
		codecs = append(codecs, own)
	}
	for _, u := range former {
		c, err := newCodec[T](b, u, kind)
		if err != nil {
			return nil, nil, fmt.Errorf("bridge %s, as it was: %w", u.bridge.Name, err)
		}
		add(u, c)
	}
	return codecs, uses, nil
}

func newCodec[F metadata.Codec](b *builder, u formatUse, kind string) (F, error) {
	d, _ := formats.Find(u.format.Format)
	return format.Codec[F](d, kind, formatOptions(b, u))
}

// A location is where entries of one format lie in a registry. It follows from any group
// there, and not from the configuration of how to connect to the registry.
type location struct {
	kind      string // the format
	namespace string // ZooKeeper: the root; Nacos: the namespace id
	group     string // Nacos: the group
}

func (p location) String() string {
	return registry.Group{Kind: p.kind, Namespace: p.namespace, Group: p.group}.String()
}

func groupLocation(g registry.Group) location { return location{g.Kind, g.Namespace, g.Group} }

func locationOf(r config.Registry, f config.Format) location {
	if s := r.Settings(); s.Layout == config.InGroups {
		return location{f.Format, s.Namespace, f.Group}
	}
	return location{kind: f.Format, namespace: f.Root}
}

func bridgeWrites(r config.Registry, x config.Bridge, at location) bool {
	return slices.ContainsFunc(x.Formats, func(f config.Format) bool { return locationOf(r, f) == at })
}

// formerUses returns the formats that bridges wrote in a target before and write no
// more, each under its bridge: the loop still looks there, so that what they
// left is held until a person decides.
func formerUses(before *runtime, cfg *config.Config, at targetKey) []formatUse {
	r, old := cfg.Registries[at.registry], before.sink(at)
	if old == nil || at.listen != "" {
		return nil
	}
	all := slices.Clone(old.formerUses)
	for _, x := range bridgesTo(before.cfg, at) {
		for _, f := range x.Formats {
			all = append(all, formatUse{bridge: x, format: f, registry: at.registry})
		}
	}
	seen := make(map[location]bool)
	for _, x := range bridgesTo(cfg, at) {
		for _, f := range x.Formats {
			seen[locationOf(r, f)] = true
		}
	}
	return slices.DeleteFunc(all, func(u formatUse) bool {
		p := locationOf(r, u.format)
		covered := seen[p]
		seen[p] = true
		return covered
	})
}
