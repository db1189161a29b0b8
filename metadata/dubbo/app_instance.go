package dubbo

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The metadata of an instance that has a meaning.
const (
	metaEndpoints = "dubbo.endpoints"
	metaRevision  = "dubbo.metadata.revision"
	metaStorage   = "dubbo.metadata.storage-type"
	metaService   = "dubbo.metadata-service.url-params"

	storageRemote = "remote"
	noRevision    = "0" // of an instance that provides nothing, such as a consumer's
)

// A port is one element of dubbo.endpoints.
type port struct {
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
}

// metadataOf returns the metadata of an instance within a limit of bytes, and
// the keys of what found no room.
func (in *instance) metadataOf(limit int) (map[string]string, []string, error) {
	ports := make([]port, 0, len(in.protocols))
	for _, p := range in.protocols {
		ports = append(ports, port{int(in.port), p.protocol})
	}
	must := []param{{metaEndpoints, metadata.JSON(ports)}, {metaRevision, in.revision}, {metaStorage, storageRemote}}
	if in.mark != "" {
		must = append(must, param{metadata.MarkKey, in.mark})
	}
	if n := sizeOf(must); n > limit {
		return nil, nil, fmt.Errorf("endpoint %s: metadata of %d bytes, at most %d", hostPort(in.host, in.port), n, limit)
	}
	may := slices.DeleteFunc(slices.Clone(in.may), func(p param) bool {
		return p.key == paramApplication
	})
	all, dropped := fit(must, may, limit)
	out := make(map[string]string, len(all))
	for _, p := range all {
		out[p.key] = p.value
	}
	return out, dropped, nil
}

// received is an instance as it was read, in whatever registry.
type received struct {
	entry    registry.Entry
	host     string
	port     uint16
	health   registry.Health
	metadata map[string]string
}

// provides reports whether an instance is a provider's: a consumer registers
// itself as well, with a revision that stands for nothing.
func (h *received) provides() bool { return h.metadata[metaRevision] != noRevision }

// ports returns at which ports an instance speaks which protocols; none where
// it does not say, and then it is the port of its own in all of them.
func (h *received) ports() (map[string][]uint16, error) {
	text := h.metadata[metaEndpoints]
	if text == "" {
		return nil, nil //nolint:nilnil // it does not say
	}
	var list []port
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%s %.80q: %w", metaEndpoints, text, err)
	}
	out := make(map[string][]uint16, len(list))
	for _, p := range list {
		if p.Port <= 0 || p.Port > 65535 {
			return nil, fmt.Errorf("%s: port %d is not within 1 to 65535", metaEndpoints, p.Port)
		}
		out[p.Protocol] = append(out[p.Protocol], uint16(p.Port))
	}
	return out, nil
}
