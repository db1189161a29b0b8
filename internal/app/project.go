package app

import (
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
		Formats: formats, Same: !from.hosts && to.imports == nil && len(x.Reads) == 0, Signer: b.signerFor(x),
	}, nil
}

// reach returns which addresses may pass a bridge, nil where its source sees
// to that itself, as a mesh does.
func (b *builder) reach(x config.Bridge) *naming.Reach {
	if b.kind(x.From).abilities().hosts {
		return nil
	}
	r := &naming.Reach{Allow: x.Select.Allow}
	if to := b.kind(x.To).abilities().imports; to != nil {
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
