// Package kratos writes and reads services as the registries of Kratos
// register them in ZooKeeper and in Nacos. It is pure: no I/O, no time, no
// state.
package kratos

import (
	"strconv"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Kind is the Group.Kind of every entry of this format.
const Kind = "kratos"

const (
	keyVersion = "version"
	keyWeight  = "weight"
	keyKind    = "kind"
)

// speaks reports whether Kratos has clients for a protocol: for HTTP and gRPC.
func speaks(f convert.Family) bool { return f != convert.Other }

// ownWeight returns the metadata with the weight; none for the usual one.
func ownWeight(i instance.Instance) map[string]string {
	m := make(map[string]string, 2)
	if w := convert.Kratos().Of(i.Share); w != convert.Kratos().Normal {
		m[keyWeight] = strconv.FormatFloat(w, 'f', 0, 64)
	}
	return m
}

// extractWeight reads the weight in metadata. As consumers do, it ignores an invalid one.
func extractWeight(i *instance.Instance) error {
	w, err := strconv.ParseInt(i.Metadata[keyWeight], 10, 64)
	delete(i.Metadata, keyWeight)
	if err != nil {
		return nil //nolint:nilerr // as documented
	}
	if w <= 0 {
		i.Health = registry.Disabled
	}
	i.Share = convert.Kratos().Share(float64(w))
	return nil
}

// Format describes the format.
func Format() format.Descriptor {
	return format.Descriptor{
		Name: Kind, Root: "/microservices", Protocol: "grpc", OwnNames: true,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(NewZooKeeper),
			format.Nacos:     format.Form(NewNacos),
		},
		NacosNames: Services,
	}
}
