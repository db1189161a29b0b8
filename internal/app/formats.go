package app

import (
	"fmt"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/kratos"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// zookeeperFormat is all that a format is in ZooKeeper: what turns services
// into entries and back, and where these lie.
type zookeeperFormat interface {
	metadata.Codec
	zookeeper.Format
}

// nacosFormat is all that a format is in Nacos.
type nacosFormat interface {
	metadata.Codec
	nacos.Format
}

// form makes a format in each kind of registry that has it; nil elsewhere.
type form struct {
	named     bool // its services in Nacos are told from all others by their names
	zookeeper func(*builder, use) (zookeeperFormat, error)
	nacos     func(*builder, use) (nacosFormat, error)
}

// use is one format of one bridge, in the registry at one of its ends.
type use struct {
	bridge   config.Bridge
	format   config.Format
	registry string // where the format is read or written
}

// forms returns every format there is. A new one has its line in metadata/formats
// or here, and one in config.
func forms() map[string]form {
	all := map[string]form{
		dubbo.Kind: {
			named:     true,
			zookeeper: func(b *builder, u use) (zookeeperFormat, error) { return dubbo.NewZooKeeper(b.dubbo(u)) },
			nacos:     func(b *builder, u use) (nacosFormat, error) { return dubbo.NewNacos(b.dubbo(u)) },
		},
		dubbo.KindApplication: {
			zookeeper: func(b *builder, u use) (zookeeperFormat, error) { return dubbo.NewZooKeeperApp(b.dubbo(u)) },
			nacos:     func(b *builder, u use) (nacosFormat, error) { return dubbo.NewNacosApp(b.dubbo(u)) },
		},
	}
	for kind, p := range formats.Plains() {
		f := form{named: kind == kratos.Kind}
		if p.ZooKeeper != nil {
			f.zookeeper = func(b *builder, u use) (zookeeperFormat, error) { return withOptions(b, u, p.ZooKeeper) }
		}
		if p.Nacos != nil {
			f.nacos = func(b *builder, u use) (nacosFormat, error) { return withOptions(b, u, p.Nacos) }
		}
		all[kind] = f
	}
	return all
}

func withOptions[T any](b *builder, u use, how func(instance.Options) (T, error)) (T, error) {
	o, err := b.instanceOptions(u)
	if err != nil {
		var none T
		return none, err
	}
	return how(o)
}

// instanceOptions returns how a bridge writes and reads a plain format.
func (b *builder) instanceOptions(u use) (instance.Options, error) {
	x, f := u.bridge, u.format
	o := instance.Options{
		Root: f.Root, Group: f.Group, Join: b.joins(u), Protocol: f.Protocol, Tags: f.Tags,
		Names: instance.Names{Pattern: f.Service},
		Mark:  metadata.NewMark(b.cfg.Owner, x.Name),
	}
	for _, r := range x.Names {
		host, err := naming.ParsePattern(r.Host)
		if err != nil {
			return o, err //nolint:wrapcheck // it names kind and text
		}
		o.Names.Rules = append(o.Names.Rules, instance.NameRule{Host: host, Port: r.Port, Service: r.Service})
		if r.Protocol != "" {
			o.Protocols = append(o.Protocols, instance.Rule{Host: host, Port: r.Port, Protocol: r.Protocol})
		}
	}
	for _, r := range f.Rules {
		host, err := naming.ParsePattern(r.Host)
		if err != nil {
			return o, err //nolint:wrapcheck // as above
		}
		o.Protocols = append(o.Protocols, instance.Rule{Host: host, Port: r.Port, Protocol: r.Protocol})
	}
	o.Subsets = b.subsets(x)
	if at := b.cfg.Registries[u.registry]; at.Nacos != nil {
		o.Namespace = at.Nacos.Namespace
	}
	return o, nil
}

// subsets reports whether what is told of subsets is written: a mesh tells it
// where it is asked to, and a registry what another bridge wrote.
func (b *builder) subsets(x config.Bridge) bool {
	from := b.cfg.Registries[x.From]
	return from.Istiod == nil || from.Istiod.Subsets
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
			if x.To == u.registry && other.place(b.cfg.Registries[x.To]) == at && (f.Join || b.cfg.Registries[x.From].Istiod == nil) {
				return true
			}
		}
	}
	return false
}

// place is where a use of a format lies in its registry: uses of one place
// are one layout.
func (u use) place(in config.Registry) string {
	if in.ZooKeeper != nil {
		return u.format.Format + " " + u.format.Root + " " + u.format.Service
	}
	return u.format.Format + " " + u.format.Group + " " + u.format.Service
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

func (b *builder) zookeeperForm(u use) (zookeeperFormat, error) {
	f := forms()[u.format.Format]
	if f.zookeeper == nil {
		return nil, fmt.Errorf("format %s has no form in ZooKeeper", u.format.Format)
	}
	return f.zookeeper(b, u)
}

func (b *builder) nacosForm(u use) (nacosFormat, error) {
	f := forms()[u.format.Format]
	if f.nacos == nil {
		return nil, fmt.Errorf("format %s has no form in Nacos", u.format.Format)
	}
	return f.nacos(b, u)
}

// scoped is a format of Nacos within one namespace and group. It implements
// nacos.Layout.
type scoped struct {
	nacosFormat
	namespace, group string
}

// Scopes implements nacos.Layout.
func (s scoped) Scopes() []registry.Group {
	return []registry.Group{{Kind: s.Kind(), Namespace: s.namespace, Group: s.group}}
}

// GroupOf implements nacos.Layout.
func (s scoped) GroupOf(namespace, group, service string) (registry.Group, bool) {
	if namespace != s.namespace || group != s.group {
		return registry.Group{}, false
	}
	return s.nacosFormat.GroupOf(namespace, group, service)
}

// Foreign implements nacos.Exclusive.
func (s scoped) Foreign(service string, in metadata.NacosInstance) error {
	if f, ok := s.nacosFormat.(nacos.Exclusive); ok {
		return f.Foreign(service, in) //nolint:wrapcheck // says what the instance is
	}
	return nil
}

// multiPath is a scoped format that keeps parts of its groups in configurations.
type multiPath struct {
	scoped
	nacos.MultiPath
}

// nacosPlaced is a format within one namespace and group.
type nacosPlaced interface {
	nacosFormat
	Scopes() []registry.Group
}

// placedIn returns a format within one namespace and group.
func placedIn(f nacosFormat, namespace, group string) nacosPlaced {
	s := scoped{f, namespace, group}
	if w, ok := f.(nacos.MultiPath); ok {
		return multiPath{s, w}
	}
	return s
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
