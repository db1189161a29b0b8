package app

import (
	"errors"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// selection returns which services a bridge takes: by the host of a mesh, or by
// the native name elsewhere.
func (b *builder) selection(x config.Bridge) (metadata.Selection, error) {
	include, noInclude := patterns(x.Select.Include)
	exclude, noExclude := patterns(x.Select.Exclude)
	imported, noImported := b.imported(x)
	return metadata.Selection{Include: include, Exclude: exclude, Imported: imported}, errors.Join(noInclude, noExclude, noImported)
}

// imported returns the hosts of a mesh that came out of other registries:
// those under the suffix of any mesh of the file.
func (b *builder) imported(x config.Bridge) ([]naming.Pattern, error) {
	if !b.kind(x.From).abilities().hosts {
		return nil, nil
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(b.cfg.Registries)) {
		if m := b.kind(name).abilities().imports; m != nil && !slices.Contains(texts, "*."+m.Suffix) {
			texts = append(texts, "*."+m.Suffix)
		}
	}
	return patterns(texts)
}
