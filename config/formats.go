package config

import (
	"cmp"

	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
)

// complete fills in what depends on the format.
func (c *Config) complete() {
	for i := range c.Bridges {
		for _, list := range [][]Format{c.Bridges[i].Formats, c.Bridges[i].Reads} {
			for j := range list {
				list[j] = list[j].completed()
			}
		}
	}
}

func (f Format) completed() Format {
	d := f.descriptor()
	f.Root, f.Protocol = cmp.Or(f.Root, d.Root), cmp.Or(f.Protocol, d.Protocol)
	return f
}

// descriptor returns the format that is meant; of one that is not known nothing
// but its zero value.
func (f Format) descriptor() format.Descriptor {
	d, _ := formats.Find(f.Format)
	return d
}

// Read returns the formats in which the registry that the bridge leads from
// is read, where it is no mesh.
func (b Bridge) Read() []Format {
	if len(b.Reads) > 0 {
		return b.Reads
	}
	return b.Formats
}
