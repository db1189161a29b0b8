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

// Resource is a whole ServiceEntry.
type Resource struct {
	Namespace string
	Name      string
	Header
	Endpoints []Endpoint // in the order of their keys
}

// Parse makes a resource of the entries of one group, which are in the order
// of Entry.Compare. It fails where the header is missing or anything is not in
// the form that a Codec writes; endpoints that are not are a registry.Refused.
func Parse(group registry.Group, entries []registry.Entry) (Resource, error) {
	r := Resource{Namespace: group.Namespace, Name: group.Name}
	if len(entries) == 0 || entries[0].Key != HeaderKey {
		return Resource{}, fmt.Errorf("%s: endpoints without their service", group)
	}
	if err := decode(entries[0], &r.Header); err != nil {
		return Resource{}, err
	}
	r.Endpoints = make([]Endpoint, len(entries)-1)
	var refused registry.Refused
	for i, e := range entries[1:] {
		if r.Endpoints[i].read(e.Value) {
			continue
		}
		if err := decode(e, &r.Endpoints[i]); err != nil {
			if refused == nil {
				refused = make(registry.Refused)
			}
			refused[e.Key] = err
		}
	}
	return r, refused.Err()
}

func decode(e registry.Entry, into any) error {
	if err := json.Unmarshal([]byte(e.Value), into); err != nil {
		return fmt.Errorf("%s: entry %q: %w", e.Group, e.Key, err)
	}
	return nil
}
