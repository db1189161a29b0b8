package kratos

import (
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// Format describes the format.
func Format() format.Descriptor {
	return format.Descriptor{
		Name: Kind, Root: "/microservices", Protocol: "grpc", OwnNames: true,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(instance.FromFormat, NewZooKeeper),
			format.Nacos:     format.Form(instance.FromFormat, NewNacos),
		},
		NacosNames: Services,
	}
}
