package app

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

// trace reads from an entry which service it was written for: where the source
// is a mesh, from its host address, and where a registry is read in one place
// whose services are called by their keys, from its key.
type trace struct {
	mesh   bool
	keyed  *registry.Group // of that place, without a name; nil: there is none
	hosts  naming.MeshHosts
	codecs []metadata.Encoder
}

// trace returns what reads from the entries of a bridge where they came from.
// Elsewhere names do not tell: an application may provide any interface, and
// one of two places may have what the other has.
func (b *builder) trace(x config.Bridge, codecs []metadata.Encoder) trace {
	if b.kind(x.From).abilities().hosts {
		return trace{mesh: true}
	}
	read := b.readings(x.From)
	if len(read) != 1 || read[0].format.Format != dubbo.Kind {
		return trace{}
	}
	p := placed(b.cfg.Registries[x.From], read[0].format)
	t := trace{keyed: &registry.Group{Kind: p.kind, Namespace: p.namespace, Group: p.group}, codecs: codecs}
	if to := b.kind(x.To).abilities().imports; to != nil {
		t.hosts = meshHosts(x, to)
	}
	return t
}

// Origin implements bridge.Trace.
func (t trace) Origin(e registry.Entry) registry.Name {
	switch {
	case t.mesh:
		return registry.Name(metadata.HostOf(e))
	case t.keyed == nil:
		return ""
	case e.Group.Kind == serviceentry.Kind:
		if n, err := t.hosts.Parse(e.Group.Name); err == nil && n.Name == "" {
			return dubbo.NameOf(*t.keyed, registry.Interface{Name: n.Key.Interface, Version: n.Key.Version, Group: n.Key.Group})
		}
	case e.Group.Kind == dubbo.Kind:
		for _, c := range t.codecs {
			if i, ok := provides(c, e); ok {
				return dubbo.NameOf(*t.keyed, i)
			}
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

// Service implements bridge.Trace.
func (t trace) Service(scope string) bool {
	return t.mesh && mesh.OneService(scope) || t.keyed != nil
}
