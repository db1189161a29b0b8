package projection

import (
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// MeshHosts are the hosts that a bridge serves in a mesh.
func MeshHosts(x config.Bridge, m *config.Hosts) naming.MeshHosts {
	return naming.MeshHosts{Registry: strings.ToLower(x.From), Suffix: m.Suffix}
}

// OriginReader reads from an entry which service it was written for: if the source is a
// mesh, from its host address, and if it came from services that are called by their
// keys, from its key.
type OriginReader struct {
	mesh  bool
	keyed []keyedPlace
}

// A keyedPlace is where a bridge reads services that are called by their keys, and where it
// writes them.
type keyedPlace struct {
	read    registry.Group   // without a name
	written registry.Group   // likewise, if it is no mesh
	codec   metadata.Encoder // of what is written there
	hosts   naming.MeshHosts // if it is a mesh
}

// NewOriginReader returns a reader of the origin of the entries of a bridge.
// Elsewhere names do not say it: an application may provide any interface, and
// one of two places may have what the other has.
func NewOriginReader(cfg *config.Config, x config.Bridge, codecs []metadata.Encoder) OriginReader {
	if cfg.Mesh(x.From) != nil {
		return OriginReader{mesh: true}
	}
	var t OriginReader
	add := func(from config.Format, to keyedPlace) {
		if from.Format == dubbo.Kind {
			to.read = LocationOf(cfg.Registries[x.From], from)
			t.keyed = append(t.keyed, to)
		}
	}
	read := x.Read()
	if to := cfg.Mesh(x.To); to != nil {
		if len(read) == 1 {
			add(read[0], keyedPlace{hosts: MeshHosts(x, to)})
		}
		return t
	}
	for i, f := range x.Formats {
		to := keyedPlace{written: LocationOf(cfg.Registries[x.To], f), codec: codecs[i]}
		switch {
		case len(x.Reads) == 0:
			add(f, to)
		case len(read) == 1: // else each may have come from any of them
			add(read[0], to)
		}
	}
	return t
}

// Origin implements bridge.Trace.
func (t OriginReader) Origin(e registry.Entry) registry.Name {
	if t.mesh {
		return registry.Name(metadata.HostOf(e))
	}
	var origin registry.Name
	for _, p := range t.keyed {
		switch name := p.origin(e); {
		case name == "" || name == origin:
		case origin != "":
			return "" // it may have come from either
		default:
			origin = name
		}
	}
	return origin
}

// origin returns the service of the place that an entry may have been written for; empty
// if there is none.
func (p keyedPlace) origin(e registry.Entry) registry.Name {
	switch {
	case e.Group.Kind == serviceentry.Kind:
		if n, err := p.hosts.Parse(e.Group.Name); err == nil && n.Name == "" {
			return dubbo.NameOf(p.read, registry.Interface{Name: n.Key.Interface, Version: n.Key.Version, Group: n.Key.Group})
		}
	case PlaceOf(e.Group) == p.written:
		if i, ok := provides(p.codec, e); ok {
			return dubbo.NameOf(p.read, i)
		}
	}
	return ""
}

// provides returns the one interface that an entry provides.
func provides(c metadata.Encoder, e registry.Entry) (registry.Interface, bool) {
	d, ok := c.(metadata.Codec)
	if !ok {
		return registry.Interface{}, false
	}
	services, _ := d.Decode([]registry.Entry{e}, nil)
	if len(services) != 1 || len(services[0].Interfaces) != 1 || !strings.HasPrefix(string(services[0].Name), dubbo.Kind+":") {
		return registry.Interface{}, false
	}
	return services[0].Interfaces[0], true
}

// Service implements bridge.Trace: it reports whether a scope covers services by name only.
func (t OriginReader) Service(scope string) bool {
	return t.mesh && mesh.OneService(scope) || len(t.keyed) > 0
}
