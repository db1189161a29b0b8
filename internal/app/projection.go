package app

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// newProjection returns the projection of services by a bridge. Where a mesh is at neither
// end, a bridge that names no formats to read keeps each service in its own.
func newProjection(b *builder, x config.Bridge, formats []metadata.Encoder) (*metadata.Projection, error) {
	chosen, err := selection(b.cfg, x)
	if err != nil {
		return nil, err
	}
	p := &metadata.Projection{
		Select: chosen, Reach: reachOf(b.cfg, x), Rules: x.Metadata.Rules(), Formats: formats, Signer: b.signer,
		Route: routeBetween(b.runtime.registryID(x.From), b.runtime.registryID(x.To)),
		Same:  meshIn(b.cfg, x.From) == nil && meshIn(b.cfg, x.To) == nil && len(x.Reads) == 0,
	}
	if meshIn(b.cfg, x.To) != nil {
		p.Signer = nil // we alone serve entries there, and nobody has to vouch for them
	}
	return p, nil
}

// reachOf returns which addresses may pass a bridge, nil if its source sees
// to that itself, as a mesh does.
func reachOf(cfg *config.Config, x config.Bridge) *naming.Reach {
	if meshIn(cfg, x.From) != nil {
		return nil
	}
	r := &naming.Reach{Allow: x.Select.Allow}
	if to := meshIn(cfg, x.To); to != nil {
		r.Only = append(r.Only, to.Allow...)
	}
	return r
}

// selection returns which services pass a bridge: by the host of a mesh, or by
// the native name elsewhere.
func selection(cfg *config.Config, x config.Bridge) (metadata.Selection, error) {
	include, errInclude := patterns(x.Select.Include)
	exclude, errExclude := patterns(x.Select.Exclude)
	importedHosts, errImported := imported(cfg, x)
	return metadata.Selection{Include: include, Exclude: exclude, Imported: importedHosts}, errors.Join(errInclude, errExclude, errImported)
}

// imported returns the hosts of a mesh that came out of other registries:
// those under the suffix of any mesh of the file.
func imported(cfg *config.Config, x config.Bridge) ([]naming.Pattern, error) {
	if meshIn(cfg, x.From) == nil {
		return nil, nil
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Registries)) {
		if m := meshIn(cfg, name); m != nil && !slices.Contains(texts, "*."+m.Suffix) {
			texts = append(texts, "*."+m.Suffix)
		}
	}
	return patterns(texts)
}

// originReader reads from an entry which service it was written for: if the source is a
// mesh, from its host address, and if a registry is read at one location
// whose services are called by their keys, from its key.
type originReader struct {
	mesh   bool
	keyed  *registry.Group // of that location, without a name; nil: there is none
	hosts  naming.MeshHosts
	codecs []metadata.Encoder
}

// newOriginReader returns a reader of the origin of the entries of a bridge.
// Elsewhere names do not say it: an application may provide any interface, and
// one of two locations may have what the other has.
func newOriginReader(cfg *config.Config, x config.Bridge, codecs []metadata.Encoder) originReader {
	if meshIn(cfg, x.From) != nil {
		return originReader{mesh: true}
	}
	read := readings(cfg, x.From)
	if len(read) != 1 || read[0].Format.Format != dubbo.Kind {
		return originReader{}
	}
	at := locationOf(cfg.Registries[x.From], read[0].Format)
	t := originReader{keyed: &at, codecs: codecs}
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
