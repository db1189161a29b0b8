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

// originReader reads from an entry which service it was written for: where the source
// is a mesh, from its host address, and where a registry is read at one location
// whose services are called by their keys, from its key.
type originReader struct {
	mesh   bool
	keyed  *registry.Group // of that location, without a name; nil: there is none
	hosts  naming.MeshHosts
	codecs []metadata.Encoder
}

// newOriginReader returns what reads from the entries of a bridge where they came from.
// Elsewhere names do not say it: an application may provide any interface, and
// one of two locations may have what the other has.
func newOriginReader(cfg *config.Config, x config.Bridge, codecs []metadata.Encoder) originReader {
	if meshIn(cfg, x.From) != nil {
		return originReader{mesh: true}
	}
	read := readings(cfg, x.From)
	if len(read) != 1 || read[0].format.Format != dubbo.Kind {
		return originReader{}
	}
	p := locationOf(cfg.Registries[x.From], read[0].format)
	t := originReader{keyed: &registry.Group{Kind: p.kind, Namespace: p.namespace, Group: p.group}, codecs: codecs}
	if to := meshIn(cfg, x.To); to != nil {
		t.hosts = meshHosts(x, to)
	}
	return t
}

// Origin implements bridge.Trace.
func (t originReader) Origin(e registry.Entry) registry.Name {
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

// Service implements bridge.Trace: it reports whether a scope covers services by name only.
func (t originReader) Service(scope string) bool {
	return t.mesh && mesh.OneService(scope) || t.keyed != nil
}
