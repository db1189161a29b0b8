// Package kratos encodes and decodes services as the registries of Kratos register them
// in ZooKeeper and in Nacos. It is pure: no I/O, no time, no state.
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

// ownWeight returns the metadata with the weight. It is empty for the normal weight.
func ownWeight(i instance.Instance) map[string]string {
	m := make(map[string]string, 2)
	if w := convert.Kratos().Of(i.Share); w != convert.Kratos().Normal {
		m[keyWeight] = strconv.FormatFloat(w, 'f', 0, 64)
	}
	return m
}

// extractWeight takes the weight from the metadata. Like consumers, it ignores an
// invalid weight.
func extractWeight(i *instance.Instance) error {
	w, err := strconv.ParseInt(i.Metadata[keyWeight], 10, 64)
	delete(i.Metadata, keyWeight)
	if err != nil {
		return nil //nolint:nilerr // an invalid weight is ignored
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
