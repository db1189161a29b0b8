// Package projection creates the pure parts of the bridges of a configuration: their codecs
// and selections, and functions that find the service and the bridge of an entry. It opens
// no connection.
//
//	codecs.go      the codecs of formats, and the location of a format in a registry
//	projection.go  the projection of services to entries
//	origin.go      the service for which an entry was written
//	author.go      the bridge that wrote an entry
package projection

import (
	"errors"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Projection returns the projection of a bridge that reads a part of its source. Between two
// registries, a bridge without configured formats to read writes each service in the format
// in which it was read. An error names an invalid pattern.
func (m Maker) Projection(
	x config.Bridge, formats []metadata.Encoder, part registry.Part, route func() metadata.Route,
) (*metadata.Projection, error) {
	selected, err := selection(m.Config, x)
	if err != nil {
		return nil, err
	}
	p := &metadata.Projection{
		Select: selected, Reach: reachOf(m.Config, x), Rules: x.Metadata.Rules(),
		Formats: formats, Signer: m.Signer, Route: route,
	}
	if m.Config.Mesh(x.To) == nil && len(x.Reads) == 0 {
		p.Places = part
	}
	if m.Config.Mesh(x.To) != nil {
		p.Signer = nil // only the bridge serves entries there, so they need no signature
	}
	return p, nil
}

// reachOf returns which addresses may pass a bridge. It returns nil for a mesh, which checks
// addresses itself.
func reachOf(cfg *config.Config, x config.Bridge) *naming.Reach {
	if cfg.Mesh(x.From) != nil {
		return nil
	}
	r := &naming.Reach{Allow: x.Select.Allow}
	if to := cfg.Mesh(x.To); to != nil {
		r.Only = append(r.Only, to.Allow...)
	}
	return r
}

// selection returns which services pass a bridge: by the host in a mesh, or by the native
// name in another registry.
func selection(cfg *config.Config, x config.Bridge) (metadata.Selection, error) {
	include, errInclude := Patterns(x.Select.Include)
	exclude, errExclude := Patterns(x.Select.Exclude)
	imported, errImported := importedHosts(cfg, x)
	return metadata.Selection{Include: include, Exclude: exclude, Imported: imported},
		errors.Join(errInclude, errExclude, errImported)
}

// importedHosts returns the patterns of hosts in a mesh that come from other registries:
// those with the suffix of any mesh in the configuration.
func importedHosts(cfg *config.Config, x config.Bridge) ([]naming.Pattern, error) {
	if cfg.Mesh(x.From) == nil {
		return nil, nil
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Registries)) {
		if m := cfg.Mesh(name); m != nil && !slices.Contains(texts, "*."+m.Suffix) {
			texts = append(texts, "*."+m.Suffix)
		}
	}
	return Patterns(texts)
}

// Patterns parses patterns. It returns an error only for patterns that the configuration has
// not validated.
func Patterns(texts []string) ([]naming.Pattern, error) {
	all := make([]naming.Pattern, 0, len(texts))
	for _, text := range texts {
		p, err := naming.ParsePattern(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
