package mcp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// created is the creation time of every resource. Without one istiod assumes 1970, so that
// our resources would take precedence over all others. It is constant, because a time that
// differs between replicas or restarts would change every resource.
func created() time.Time { return time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC) }

// A wireResource is a ServiceEntry in wire format, encoded once for all streams. It is
// immutable.
type wireResource struct {
	name    string // namespace/name
	version string // hash of the content; istiod skips a resource whose version it has
	sum     uint64 // version as a number
	wire    *anypb.Any
	keys    []naming.ServiceKey
	host    naming.HostAddress // host address of keys
}

// A parsedGroup is a group ready to be encoded, except for its virtual address.
type parsedGroup struct {
	group registry.Group
	serviceentry.Header
	endpoints   []byte // in wire format
	hasHostName bool   // an endpoint is a host name instead of an IP address
}

// parse parses the entries of a group, which are sorted by key. Entries that cannot be
// parsed are a registry.Refused.
func parse(name registry.Group, entries []entry) (parsedGroup, error) {
	if len(entries) == 0 || entries[0].Key != serviceentry.HeaderKey {
		return parsedGroup{}, fmt.Errorf("%s: endpoints without the entry of their service", name)
	}
	s := parsedGroup{group: name}
	var err error
	if s.Header, err = serviceentry.ParseHeader(entries[0].in(name)); err != nil {
		return parsedGroup{}, err
	}
	s.endpoints, s.hasHostName, err = endpoints(name, entries[1:], s.Port.Name)
	return s, err
}

// encode encodes a group with a virtual address, which may be invalid for none.
func encode(r parsedGroup, vip netip.Addr) (*wireResource, error) {
	port := &networking.ServicePort{Number: uint32(r.Port.Number), Name: r.Port.Name, Protocol: r.Port.Protocol}
	body := &networking.ServiceEntry{
		Hosts:      []string{r.Host},
		Location:   networking.ServiceEntry_MESH_INTERNAL,
		Resolution: networking.ServiceEntry_STATIC,
		ExportTo:   r.ExportTo,
		Ports:      []*networking.ServicePort{port},
	}
	if r.hasHostName {
		body.Resolution = networking.ServiceEntry_DNS
	}
	if r.External {
		body.Location = networking.ServiceEntry_MESH_EXTERNAL
	}
	if vip.IsValid() {
		body.Addresses = []string{vip.String()}
	}
	return wrap(r, body)
}

// wrap appends the endpoints to a ServiceEntry and wraps it as an MCP resource with its
// version.
func wrap(r parsedGroup, entry *networking.ServiceEntry) (*wireResource, error) {
	deterministic := proto.MarshalOptions{Deterministic: true}
	body, err := deterministic.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.group.Name, err)
	}
	body = append(body, r.endpoints...)
	meta := &mcpv1.Metadata{
		Name: r.group.Namespace + "/" + r.group.Name, CreateTime: timestamppb.New(created()),
		Labels: r.Labels, Annotations: r.Annotations,
	}
	head, err := deterministic.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.group.Name, err)
	}
	version, sum := dataplane.VersionOf(append(head, body...))
	meta.Version = version
	whole, err := deterministic.Marshal(&mcpv1.Resource{
		Metadata: meta,
		Body:     &anypb.Any{TypeUrl: "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry", Value: body},
	})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.group.Name, err)
	}
	return &wireResource{
		name: meta.GetName(), version: version, sum: sum,
		wire: &anypb.Any{TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: slices.Clip(whole)},
		keys: keysOf(r), host: naming.HostAddress{Host: r.Host, Port: r.Port.Number},
	}, nil
}

func keysOf(r parsedGroup) []naming.ServiceKey {
	keys := make([]naming.ServiceKey, 0, len(r.Keys))
	for _, text := range r.Keys {
		if k, err := naming.ParseServiceKey(text); err == nil { // always: the codec wrote the text
			keys = append(keys, k)
		}
	}
	return keys
}

// The numbers of the fields of istio.networking.v1alpha3, ServiceEntry and
// WorkloadEntry.
const (
	fieldEndpoints = 6

	fieldAddress  = 1
	fieldPorts    = 2
	fieldLabels   = 3
	fieldLocality = 5
	fieldWeight   = 6

	fieldKey, fieldValue = 1, 2 // in an entry of a map
)

// endpoints encodes entries as the endpoints of a ServiceEntry, for the port with the given
// name. It reports whether an endpoint is a host name. Entries that cannot be parsed are a
// registry.Refused.
//
// Endpoints are most of a ServiceEntry, and the generated code is slow with their maps.
func endpoints(name registry.Group, entries []entry, port string) (b []byte, byName bool, err error) {
	const usualSize = 64 // bytes of one endpoint
	b = make([]byte, 0, usualSize*len(entries))
	var endpoint, item []byte
	refused := make(registry.Refused)
	for _, encoded := range entries {
		e, err := serviceentry.ParseEndpoint(encoded.in(name))
		if err != nil {
			refused[encoded.Key] = err
			continue
		}
		byName = byName || serviceentry.IsName(e.Address)
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
			endpoint = protowire.AppendTag(endpoint, fieldWeight, protowire.VarintType)
			endpoint = protowire.AppendVarint(endpoint, uint64(e.Weight))
		}
		b = appendBytes(b, fieldEndpoints, endpoint)
	}
	return b, byName, refused.Err()
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}
