// Package all has the kinds of registries that there are, for programs that find out
// which they use when they run. It brings the SDKs of all of them.
package all

import (
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/mesh"
	"github.com/xds-bridge/xds-bridge/plugins/client/nacos"
	"github.com/xds-bridge/xds-bridge/plugins/client/zookeeper"
)

// Kinds returns them.
func Kinds() []client.Kind { return []client.Kind{mesh.Kind(), nacos.Kind(), zookeeper.Kind()} }
