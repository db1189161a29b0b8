// Package formats lists the formats. It is pure: no I/O, no time, no state.
package formats

import (
	"github.com/xds-bridge/xds-bridge/metadata/cloudwego"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/gozero"
	"github.com/xds-bridge/xds-bridge/metadata/kratos"
	"github.com/xds-bridge/xds-bridge/metadata/plain"
	"github.com/xds-bridge/xds-bridge/metadata/springcloud"
)

// All returns every format, in the order of the documents. A new format is added here.
func All() []format.Descriptor {
	return []format.Descriptor{
		dubbo.Format(),
		dubbo.FormatApplication(),
		springcloud.Format(),
		kratos.Format(),
		gozero.Format(),
		cloudwego.FormatHertz(),
		cloudwego.FormatKitex(),
		plain.Format(),
	}
}

// Names returns the names of all formats, in the same order.
func Names() []string {
	var names []string
	for _, f := range All() {
		names = append(names, f.Name)
	}
	return names
}

// Find returns the format of a name; false if no format has it.
func Find(name string) (format.Descriptor, bool) {
	for _, f := range All() {
		if f.Name == name {
			return f, true
		}
	}
	return format.Descriptor{}, false
}
