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

// MeshHosts returns the naming of the hosts that a bridge serves in a mesh.
func MeshHosts(x config.Bridge, m *config.Hosts) naming.MeshHosts {
	return naming.MeshHosts{Registry: strings.ToLower(x.From), Suffix: m.Suffix}
}

// OriginReader finds the service for which an entry was written. If the source is a mesh,
// the host address in the entry names the service. If services of the source are named by
// their service keys, the service key in the entry does. It is immutable.
type OriginReader struct {
	mesh  bool
	keyed []keyedPlace
}

// A keyedPlace is the location from which a bridge reads services that are named by their
// service keys, and where it writes them.
type keyedPlace struct {
	read registry.Group // without a name

	// If the target is a mesh.
	hosts naming.MeshHosts

	// If the target is another registry.
	written registry.Group // without a name
	codec   metadata.Encoder
}

// NewOriginReader returns the OriginReader of a bridge. For other formats than Dubbo's
// interfaces, entries do not show their service, because an application may provide any
// interface. With several formats to read, an entry may come from any of them.
func NewOriginReader(cfg *config.Config, x config.Bridge, codecs []metadata.Encoder) OriginReader {
	if cfg.Mesh(x.From) != nil {
		return OriginReader{mesh: true}
	}
	var o OriginReader
	add := func(from config.Format, to keyedPlace) {
		if from.Format == dubbo.Kind {
			to.read = LocationOf(cfg.Registries[x.From], from)
			o.keyed = append(o.keyed, to)
		}
	}
	read := x.Read()
	if to := cfg.Mesh(x.To); to != nil {
		if len(read) == 1 {
			add(read[0], keyedPlace{hosts: MeshHosts(x, to)})
		}
		return o
	}
	for i, f := range x.Formats {
		to := keyedPlace{written: LocationOf(cfg.Registries[x.To], f), codec: codecs[i]}
		switch {
		case len(x.Reads) == 0:
			add(f, to)
		case len(read) == 1: // otherwise the format that was read is not known
			add(read[0], to)
		}
	}
	return o
}

// Origin implements bridge.Trace. It returns an empty name if the service is not known.
func (o OriginReader) Origin(e registry.Entry) registry.Name {
	if o.mesh {
		return registry.Name(metadata.HostOf(e))
	}
	var origin registry.Name
	for _, p := range o.keyed {
		switch name := p.origin(e); {
		case name == "" || name == origin:
		case origin != "":
			return "" // two services are possible
		default:
			origin = name
		}
	}
	return origin
}

// origin returns the service in this place for which an entry may have been written, or an
// empty name.
func (p keyedPlace) origin(e registry.Entry) registry.Name {
	switch {
	case e.Group.Kind == serviceentry.Kind:
		if n, err := p.hosts.Parse(e.Group.Name); err == nil && n.Name == "" {
			i := registry.Interface{Name: n.Key.Interface, Version: n.Key.Version, Group: n.Key.Group}
			return dubbo.NameOf(p.read, i)
		}
	case PlaceOf(e.Group) == p.written:
		if i, ok := onlyInterface(p.codec, e); ok {
			return dubbo.NameOf(p.read, i)
		}
	}
	return ""
}

// onlyInterface returns the interface that an entry provides, if it provides exactly one.
func onlyInterface(c metadata.Encoder, e registry.Entry) (registry.Interface, bool) {
	d, ok := c.(metadata.Codec)
	if !ok {
		return registry.Interface{}, false
	}
	services, _ := d.Decode([]registry.Entry{e}, nil)
	if len(services) != 1 || len(services[0].Interfaces) != 1 ||
		!strings.HasPrefix(string(services[0].Name), dubbo.Kind+":") {
		return registry.Interface{}, false
	}
	return services[0].Interfaces[0], true
}

// Service implements bridge.Trace. It reports whether a scope is known to contain only the
// services whose names it has.
func (o OriginReader) Service(scope string) bool {
	return o.mesh && mesh.OneService(scope) || len(o.keyed) > 0
}
