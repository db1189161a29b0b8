package projection

import (
	"fmt"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Maker creates the codecs and the projections of a configuration.
type Maker struct {
	Config *config.Config
	Signer *metadata.Signer // nil: marks are not signed
}

// formatOptions returns the options of a format in a use.
func (m Maker) formatOptions(u config.Use) format.Options {
	cfg, x, f := m.Config, u.Bridge, u.Format
	o := format.Options{
		Root: f.Root, Documents: f.Metadata, Namespace: cfg.Registries[u.Registry].Settings().Namespace, Group: f.Group,
		Service: f.Service, Join: sharesName(cfg, u), Protocol: f.Protocol,
		Mark: metadata.NewMark(cfg.Owner, x.Name), Subsets: cfg.Registries[x.From].Settings().Subsets, Tags: f.Tags,
		LegacyNames: f.LegacyNames,
	}
	if m.Signer != nil {
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

// sharesName reports whether several services may share a plain name in a use of a format.
// They may if the format is configured so (join), or if the source is a registry, in which
// one name is one service. In a mesh, one name may be two services in two namespaces.
func sharesName(cfg *config.Config, u config.Use) bool {
	return slices.ContainsFunc(cfg.Uses(), func(o config.Use) bool {
		return !o.Read && o.Registry == u.Registry && layoutOf(cfg, o) == layoutOf(cfg, u) &&
			(o.Join || cfg.Mesh(o.Bridge.From) == nil)
	})
}

// A layout is the location of a format in its registry, and the names of services there.
type layout struct {
	location registry.Group
	service  string
}

func layoutOf(cfg *config.Config, u config.Use) layout {
	return layout{LocationOf(cfg.Registries[u.Registry], u.Format), u.Service}
}

// Readings returns the uses of formats that read a registry, one for each layout.
func Readings(cfg *config.Config, name string) []config.Use {
	var all []config.Use
	seen := make(map[layout]bool)
	for _, u := range cfg.Uses() {
		if at := layoutOf(cfg, u); u.Read && u.Registry == name && !seen[at] {
			seen[at] = true
			all = append(all, u)
		}
	}
	return all
}

// PartOf returns the part of its source that a bridge reads: a place for each format. It
// returns nil for a mesh. Bridges share one source, and each uses its own part of it.
func PartOf(cfg *config.Config, x config.Bridge) (registry.Part, error) {
	if cfg.Mesh(x.From) != nil {
		return nil, nil // a mesh has no places
	}
	var part registry.Part
	for _, f := range x.Read() {
		u := config.Use{Format: f, Bridge: x, Registry: x.From, Read: true}
		c, err := NewCodec[metadata.Codec](Maker{Config: cfg}, u, cfg.Registries[x.From].Settings().Kind)
		if err != nil {
			return nil, fmt.Errorf("bridge %s: %w", x.Name, err)
		}
		part = append(part, c.Place())
	}
	return part, nil
}

// A CodecUse is a codec and the first use of its format.
type CodecUse[T any] struct {
	config.Use
	Codec T
}

// NewCodecs creates the codecs with which bridges write a registry. It returns the codecs of
// each bridge, and one use for each layout. Former uses are last.
func NewCodecs[T metadata.Codec](
	m Maker, name, kind string, bridges []config.Bridge, former []config.Use,
) (codecs [][]metadata.Encoder, uses []CodecUse[T], err error) {
	seen := make(map[layout]bool)
	add := func(u config.Use, c T) {
		if at := layoutOf(m.Config, u); !seen[at] { // several bridges may write the same layout
			seen[at] = true
			uses = append(uses, CodecUse[T]{u, c})
		}
	}
	for _, x := range bridges {
		var own []metadata.Encoder
		for _, f := range x.Formats {
			u := config.Use{Format: f, Bridge: x, Registry: name}
			c, err := NewCodec[T](m, u, kind)
			if err != nil {
				return nil, nil, fmt.Errorf("bridge %s: %w", x.Name, err)
			}
			own = append(own, c)
			add(u, c)
		}
		codecs = append(codecs, own)
	}
	for _, u := range former {
		c, err := NewCodec[T](m, u, kind)
		if err != nil {
			return nil, nil, fmt.Errorf("bridge %s, former format: %w", u.Bridge.Name, err)
		}
		add(u, c)
	}
	return codecs, uses, nil
}

// NewCodec creates the codec for a use of a format in a kind of registry.
func NewCodec[F metadata.Codec](m Maker, u config.Use, kind string) (F, error) {
	d, _ := formats.Find(u.Format.Format)
	return format.Codec[F](d, kind, m.formatOptions(u))
}

// LocationOf returns the location of a format in a registry: the kind, the namespace and the
// group that all groups of the format have in common.
func LocationOf(r config.Registry, f config.Format) registry.Group {
	if s := r.Settings(); s.Layout == config.InGroups {
		return registry.Group{Kind: f.Format, Namespace: s.Namespace, Group: f.Group}
	}
	return registry.Group{Kind: f.Format, Namespace: f.Root}
}

// PlaceOf returns the location of a group, in the form of LocationOf.
func PlaceOf(g registry.Group) registry.Group {
	g.Name, g.Exclusive = "", false
	return g
}

// Writes reports whether a bridge writes a location in a registry.
func Writes(r config.Registry, x config.Bridge, at registry.Group) bool {
	return slices.ContainsFunc(x.Formats, func(f config.Format) bool { return LocationOf(r, f) == at })
}

// ServiceEntries returns the codecs of all bridges into a mesh. The values of the subset
// label are the subsets of a host. If it is empty, hosts have no subsets.
func ServiceEntries(
	cfg *config.Config, m *config.Hosts, subsetLabel string, bridges []config.Bridge,
) ([][]metadata.Encoder, error) {
	var codecs [][]metadata.Encoder
	for _, x := range bridges {
		c, err := serviceentry.New(serviceentry.Options{
			Hosts:     MeshHosts(x, m),
			Namespace: m.Namespace, VIPs: m.VIPs, ExportTo: m.ExportTo,
			Mark: metadata.NewMark(cfg.Owner, x.Name), Protocol: x.Formats[0].Protocol,
			SubsetLabel: subsetLabel, IPOnly: servesDataPlanes(cfg.Registries[x.To]),
		})
		if err != nil {
			return nil, fmt.Errorf("bridge %s: %w", x.Name, err)
		}
		codecs = append(codecs, []metadata.Encoder{c})
	}
	return codecs, nil
}

// servesDataPlanes reports whether the bridge, instead of istiod, sends endpoints to data
// planes.
func servesDataPlanes(r config.Registry) bool { return r.Istiod != nil && r.Istiod.Import.DataPlanes }

// Yields returns a function that reports whether the protocol of a bridge's entry is a guess.
// It returns nil if no protocol is.
func Yields(cfg *config.Config, x config.Bridge, codecs []metadata.Encoder) func(registry.Entry) bool {
	if cfg.Mesh(x.From) == nil {
		return nil // other registries store the protocol
	}
	return func(e registry.Entry) bool {
		return slices.ContainsFunc(codecs, func(c metadata.Encoder) bool {
			z, ok := c.(*dubbo.ZooKeeper)
			return ok && z.Guessed(e)
		})
	}
}
