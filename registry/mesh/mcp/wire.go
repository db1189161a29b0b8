package mcp

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
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

// appendEndpoints adds the endpoints to an encoded ServiceEntry. They are most
// of what there is to encode, and their maps are what the generated code takes
// longest for.
func appendEndpoints(b []byte, r serviceentry.Resource) []byte {
	var endpoint, item []byte
	for _, e := range r.Endpoints {
		endpoint = appendText(endpoint[:0], fieldAddress, e.Address)
		item = protowire.AppendTag(appendText(item[:0], fieldKey, r.Port.Name), fieldValue, protowire.VarintType)
		endpoint = appendBytes(endpoint, fieldPorts, protowire.AppendVarint(item, uint64(e.Port)))
		for _, key := range slices.Sorted(maps.Keys(e.Labels)) {
			item = appendText(appendText(item[:0], fieldKey, key), fieldValue, e.Labels[key])
			endpoint = appendBytes(endpoint, fieldLabels, item)
		}
		if e.Locality != "" {
			endpoint = appendText(endpoint, fieldLocality, e.Locality)
		}
		if e.Weight != 0 {
			endpoint = protowire.AppendVarint(protowire.AppendTag(endpoint, fieldWeight, protowire.VarintType), uint64(e.Weight))
		}
		b = appendBytes(b, fieldEndpoints, endpoint)
	}
	return b
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}
