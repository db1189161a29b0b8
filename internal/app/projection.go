package app

import (
	"errors"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// projection returns what a bridge makes of services. Where a mesh is at neither
// end, a bridge that names no formats to read keeps each service in its own.
func (b *builder) projection(x config.Bridge, formats []metadata.Encoder) (*metadata.Projection, error) {
	chosen, err := b.selection(x)
	if err != nil {
		return nil, err
	}
	from, to := b.kind(x.From).abilities(), b.kind(x.To).abilities()
	return &metadata.Projection{
		Select: chosen, Reach: b.reach(x), Route: routeBetween(b.registryID(x.From), b.registryID(x.To)), Rules: rules(x.Metadata),
		Formats: formats, Same: from.mesh == nil && to.mesh == nil && len(x.Reads) == 0, Signer: b.signerFor(x),
	}, nil
}

// reach returns which addresses may pass a bridge, nil where its source sees
// to that itself, as a mesh does.
func (b *builder) reach(x config.Bridge) *naming.Reach {
	if b.kind(x.From).abilities().mesh != nil {
		return nil
	}
	r := &naming.Reach{Allow: x.Select.Allow}
	if to := b.kind(x.To).abilities().mesh; to != nil {
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
func (b *builder) selection(x config.Bridge) (metadata.Selection, error) {
	include, errInclude := patterns(x.Select.Include)
	exclude, errExclude := patterns(x.Select.Exclude)
	imported, errImported := b.imported(x)
	return metadata.Selection{Include: include, Exclude: exclude, Imported: imported}, errors.Join(errInclude, errExclude, errImported)
}

// imported returns the hosts of a mesh that came out of other registries:
// those under the suffix of any mesh of the file.
func (b *builder) imported(x config.Bridge) ([]naming.Pattern, error) {
	if b.kind(x.From).abilities().mesh == nil {
		return nil, nil
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(b.cfg.Registries)) {
		if m := b.kind(name).abilities().mesh; m != nil && !slices.Contains(texts, "*."+m.Suffix) {
			texts = append(texts, "*."+m.Suffix)
		}
	}
	return patterns(texts)
}
