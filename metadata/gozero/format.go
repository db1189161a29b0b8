package gozero

import (
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// Format describes the format. No client of it looks into ZooKeeper.
func Format() format.Descriptor {
	return format.Descriptor{
		Name: Kind, Protocol: "grpc", Untyped: true,
		Forms: map[string]format.New{format.Nacos: format.Form(instance.FromFormat, NewNacos)},
	}
}
