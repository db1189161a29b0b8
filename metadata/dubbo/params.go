package dubbo

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// The parameters of a provider that have a meaning here. Those that begin
// with mesh, and endPointWeight, are the ones dubbo-go's xDS registry knows.
const (
	paramApplication = "application"
	paramCategory    = "category"
	paramDisabled    = "disabled"
	paramEnabled     = "enabled"
	paramGroup       = "group"
	paramInterface   = "interface"
	paramPath        = "path"
	paramProtocol    = "protocol"
	paramRelease     = "release"
	paramSide        = "side"
	paramTag         = "dubbo.tag"
	paramVersion     = "version"
	paramWeight      = "weight"

	paramMeshCluster  = "meshClusterID"
	paramMeshHost     = "meshHostAddr"
	paramMeshSubset   = "meshSubset"
	paramMeshWeight   = "endPointWeight"
	paramMeshLocality = "meshLocality"
	paramInstance     = "instanceId"
	paramMeshTLS      = "tlsMode"
)

type param struct{ key, value string }

func (p param) compare(o param) int { return strings.Compare(p.key, o.key) }

// reserved reports whether the codec itself writes a parameter, from fields
// of the model.
func reserved(key string) bool {
	switch key {
	case paramCategory, paramDisabled, paramEnabled, paramGroup, paramInterface, paramPath, paramProtocol, paramSide, paramVersion,
		paramWeight, paramMeshWeight, paramMeshLocality, paramInstance, metadata.MarkKey:
		return true
	}
	return false
}

// volatile reports whether a parameter differs from start to start of one
// provider or says nothing to a consumer. Such are neither read nor written:
// equal providers have equal bytes. The timestamp that is written in ZooKeeper
// is none of a provider's, see metadata.Stamp.
func volatile(key string) bool {
	switch key {
	case metadata.StampKey, "remote.timestamp", "pid", "bind.ip", "bind.port", "qos.enable", "nacos.category":
		return true
	}
	return false
}

// fit adds to must as many of may, in their order, as the limit allows, and
// returns all sorted by key with the keys that found no room or that JSON
// could not hold.
func fit(must, may []param, limit int) (all []param, dropped []string) {
	size := 0
	for _, p := range must {
		size += len(p.key) + len(p.value)
	}
	all = must
	for _, p := range may {
		n := len(p.key) + len(p.value)
		if p.value == "" {
			continue
		}
		if size+n > limit || !utf8.ValidString(p.key) || !utf8.ValidString(p.value) {
			dropped = append(dropped, p.key)
			continue
		}
		size += n
		all = append(all, p)
	}
	slices.SortFunc(all, param.compare)
	return all, dropped
}

func sizeOf(params []param) (n int) {
	for _, p := range params {
		n += len(p.key) + len(p.value)
	}
	return n
}

// canonicalPath returns a provider's path without the slashes that dubbo-go
// puts before it.
func canonicalPath(s string) string { return strings.TrimLeft(s, "/") }
