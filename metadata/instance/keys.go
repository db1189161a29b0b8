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
	keyTLS          = "tlsMode" // of a mesh's endpoint
)

// ofModel reports whether a key tells of a field of the model, or of a mesh:
// all formats read and write it alike.
func ofModel(key string) bool {
	switch key {
	case "", metadata.MarkKey, keyMeshWeight, keyMeshLocality, keyMeshHost, keyMeshCluster, keyMeshSubset, keyInstance, keyTag:
		return true
	}
	return false
}

// ofRegistration reports whether a key speaks of a registration itself: to the
// server of Nacos, or to consumers of Dubbo that look into the same place.
func (c *codec) ofRegistration(key string) bool {
	_, nacos := c.form.(RecordForm)
	return nacos && strings.HasPrefix(key, "preserved.") || strings.HasPrefix(key, "dubbo.metadata") || key == "dubbo.endpoints" ||
		strings.HasPrefix(key, "dubbo.subscribed-services")
}

// reserved reports whether what stands under a key says something to consumers
// of the format, or of its registry: it is no metadata of a user.
func (c *codec) reserved(key string) bool { return c.form.Reserved(key) || c.ofRegistration(key) }
