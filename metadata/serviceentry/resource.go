package serviceentry

import (
	"encoding/json"
	"fmt"

	"github.com/xds-bridge/xds-bridge/registry"
)

// HeaderKey is the key of the entry that holds a service without its
// endpoints; every other entry of the group is an endpoint.
const HeaderKey = registry.HeadKey

// Header is a ServiceEntry without its endpoints, as the value of its entry
// has it in JSON.
type Header struct {
	Host        string            `json:"host"`
	VIP         string            `json:"vip,omitempty"` // the address that the host's hash stands for
	Port        Port              `json:"port"`
	External    bool              `json:"external,omitempty"`
	ExportTo    []string          `json:"exportTo,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Keys        []string          `json:"keys,omitempty"` // service keys that are found here
}

// Port is the one port of a service.
type Port struct {
	Number   uint16 `json:"number"`
	Name     string `json:"name"`
	Protocol string `json:"protocol"` // istio's
}

// ParseHeader reads the entry of a service. It fails where that is not in the form
// that a Codec writes.
func ParseHeader(e registry.Entry) (Header, error) {
	var h Header
	err := decode(e, &h)
	return h, err
}

// ParseEndpoint reads the entry of an endpoint, as ParseHeader does.
func ParseEndpoint(e registry.Entry) (Endpoint, error) {
	var plain Endpoint
	if plain.read(e.Value) {
		return plain, nil
	}
	var other Endpoint // on the heap, as any that reflection sees
	err := decode(e, &other)
	return other, err
}

func decode(e registry.Entry, into any) error {
	if err := json.Unmarshal([]byte(e.Value), into); err != nil {
		return fmt.Errorf("%s: entry %q: %w", e.Group, e.Key, err)
	}
	return nil
}
