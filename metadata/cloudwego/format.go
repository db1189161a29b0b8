package cloudwego

import (
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// FormatHertz describes the format of Hertz.
func FormatHertz() format.Descriptor { return describe(Hertz, "http") }

// FormatKitex describes the format of Kitex.
func FormatKitex() format.Descriptor { return describe(Kitex, "thrift") }

func describe(name, protocol string) format.Descriptor {
	return format.Descriptor{
		Name: name, Root: "/", Protocol: protocol, Untyped: true,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(instance.FromFormat, NewZooKeeper(name)),
			format.Nacos:     format.Form(instance.FromFormat, NewNacos(name)),
		},
	}
}
