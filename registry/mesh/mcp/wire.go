package mcp

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The numbers of the fields of istio.networking.v1alpha3, ServiceEntry and
// WorkloadEntry.
const (
	fieldEndpoints = 6

	fieldAddress  = 1
	fieldPorts    = 2
	fieldLabels   = 3
	fieldLocality = 5
	fieldWeight   = 6

	fieldKey, fieldValue = 1, 2 // of what is in a map
)

// endpoints returns the endpoints of an encoded ServiceEntry, whose port has the
// given name. They are most of what there is to encode, and their maps are what
// the generated code takes longest for. Those that cannot be read are a
// registry.Refused.
func endpoints(name registry.Group, entries []entry, port string) ([]byte, error) {
	const usual = 64 // bytes of one
	b := make([]byte, 0, usual*len(entries))
	var endpoint, item []byte
	refused := make(registry.Refused)
	for _, of := range entries {
		e, err := serviceentry.ParseEndpoint(of.in(name))
		if err != nil {
			refused[of.Key] = err
			continue
		}
		endpoint = appendText(endpoint[:0], fieldAddress, e.Address)
		item = protowire.AppendTag(appendText(item[:0], fieldKey, port), fieldValue, protowire.VarintType)
		endpoint = appendBytes(endpoint, fieldPorts, protowire.AppendVarint(item, uint64(e.Port)))
		if len(e.Labels) > 0 {
			for _, key := range slices.Sorted(maps.Keys(e.Labels)) {
				item = appendText(appendText(item[:0], fieldKey, key), fieldValue, e.Labels[key])
				endpoint = appendBytes(endpoint, fieldLabels, item)
			}
		}
		if e.Locality != "" {
			endpoint = appendText(endpoint, fieldLocality, e.Locality)
		}
		if e.Weight != 0 {
			endpoint = protowire.AppendVarint(protowire.AppendTag(endpoint, fieldWeight, protowire.VarintType), uint64(e.Weight))
		}
		b = appendBytes(b, fieldEndpoints, endpoint)
	}
	return b, refused.Err()
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}
