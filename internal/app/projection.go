package app

import (
	"errors"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// newProjection returns what a bridge makes of services. Where a mesh is at neither
// end, a bridge that names no formats to read keeps each service in its own.
func newProjection(b *builder, x config.Bridge, formats []metadata.Encoder) (*metadata.Projection, error) {
	chosen, err := selection(b.cfg, x)
	if err != nil {
		return nil, err
	}
	p := &metadata.Projection{
		Select: chosen, Reach: reachOf(b.cfg, x), Rules: rules(x.Metadata), Formats: formats, Signer: b.signer,
		Route: routeBetween(b.runtime.registryID(x.From), b.runtime.registryID(x.To)),
		Same:  meshIn(b.cfg, x.From) == nil && meshIn(b.cfg, x.To) == nil && len(x.Reads) == 0,
	}
	if meshIn(b.cfg, x.To) != nil {
		p.Signer = nil // we alone serve entries there, and nobody has to vouch for them
	}
	return p, nil
}

// reachOf returns which addresses may pass a bridge, nil where its source sees
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

// rules returns what of the attributes passes a bridge.
func rules(m config.Metadata) metadata.Rules {
	r := metadata.Rules{Keep: m.Keep, Drop: m.Drop, Rename: m.Rename, Add: m.Add}
	for _, v := range m.Values {
		r.Values = append(r.Values, metadata.ValueRule{Key: v.Key, From: v.From, To: v.To})
	}
	return r
}

// selection returns which services a bridge takes: by the host of a mesh, or by
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
