// Package projection makes what a bridge of the configuration carries: the codecs of its
// formats, which services it chooses, and whose an entry is. It opens no connection.
//
//	codecs.go      codecs by format, and where a format lies in a registry
//	projection.go  how services become entries
//	origin.go      which service an entry was written for
//	author.go      which bridge an entry was written by
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

// Projection returns the projection of services by a bridge that takes a part of its
// source. Where a mesh is at neither end, a bridge that names no formats to read writes
// each service in the format in whose place it was read.
func (m Maker) Projection(x config.Bridge, formats []metadata.Encoder, part registry.Part, route func() metadata.Route) (*metadata.Projection, error) {
	chosen, err := selection(m.Config, x)
	if err != nil {
		return nil, err
	}
	p := &metadata.Projection{
		Select: chosen, Reach: reachOf(m.Config, x), Rules: x.Metadata.Rules(), Formats: formats, Signer: m.Signer, Route: route,
	}
	if m.Config.Mesh(x.To) == nil && len(x.Reads) == 0 {
		p.Places = part
	}
	if m.Config.Mesh(x.To) != nil {
		p.Signer = nil // we alone serve entries there, and nobody has to vouch for them
	}
	return p, nil
}

// reachOf returns which addresses may pass a bridge, nil if its source sees
// to that itself, as a mesh does.
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

// selection returns which services pass a bridge: by the host of a mesh, or by
// the native name elsewhere.
func selection(cfg *config.Config, x config.Bridge) (metadata.Selection, error) {
	include, errInclude := Patterns(x.Select.Include)
	exclude, errExclude := Patterns(x.Select.Exclude)
	importedHosts, errImported := imported(cfg, x)
	return metadata.Selection{Include: include, Exclude: exclude, Imported: importedHosts}, errors.Join(errInclude, errExclude, errImported)
}

// imported returns the hosts of a mesh that came out of other registries:
// those under the suffix of any mesh of the file.
func imported(cfg *config.Config, x config.Bridge) ([]naming.Pattern, error) {
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

// Patterns parses patterns, which were validated with the configuration.
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
