package instance

import (
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// The keys of metadata that have a meaning here. Those that begin with mesh,
// and endPointWeight, are the ones dubbo-go's xDS registry knows.
const (
	keyMeshWeight   = "endPointWeight"
	keyMeshLocality = "meshLocality"
	keyMeshHost     = "meshHostAddr"
	keyMeshCluster  = "meshClusterID"
	keyMeshSubset   = "meshSubset"
	keyInstance     = "instanceId"
	keyVersion      = "version"
	keyGroup        = "group"
	keyRegion       = "region"
	keyZone         = "zone"
	keyTag          = "dubbo.tag"
)

// fromMesh reports whether a key tells of a mesh what an attribute of a mesh's
// service does.
func fromMesh(key string) bool {
	switch key {
	case keyMeshHost, keyMeshCluster, keyMeshSubset, keyTag:
		return true
	}
	return false
}

// passes reports whether an attribute is written as it is. What a format of
// its own reads something else into never passes to another, and what differs
// from start to start of one provider passes nowhere.
func passes(key string) bool {
	switch key {
	case "", metadata.MarkKey, keyMeshWeight, keyMeshLocality, keyMeshHost, keyMeshCluster, keyMeshSubset, keyInstance, keyTag,
		"timestamp", "remote.timestamp", "pid", "bind.ip", "bind.port", "qos.enable", "tlsMode",
		keyProtocol, "secure", "instance_status", "gRPC_port", "IPv6", "enabled",
		"weight", "side", "category", "nacos.category", "interface", "path", "id", "registry.id":
		return false
	}
	return !strings.HasPrefix(key, "preserved.") && !strings.HasPrefix(key, "dubbo.metadata") && key != "dubbo.endpoints" &&
		!strings.HasPrefix(key, "dubbo.subscribed-services")
}
