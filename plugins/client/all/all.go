// Package all returns every kind of registry, for programs that learn at run time which one
// they use. It links the SDKs of all kinds.
package all

import (
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/mesh"
	"github.com/xds-bridge/xds-bridge/plugins/client/nacos"
	"github.com/xds-bridge/xds-bridge/plugins/client/zookeeper"
)

// Kinds returns all kinds of registries.
func Kinds() []client.Kind { return []client.Kind{mesh.Kind(), nacos.Kind(), zookeeper.Kind()} }
