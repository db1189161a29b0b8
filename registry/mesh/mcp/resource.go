package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
)

// created is the creation time of every resource. Without one istiod takes
// 1970 and lets ours win against everything else; one that differs between
// replicas or restarts would be a change.
func created() time.Time { return time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC) }

// revisionLabel restricts a resource to one revision of istiod.
const revisionLabel = "istio.io/rev"

// A resource is one ServiceEntry as it goes over the wire, encoded once for
// all istiods.
type resource struct {
	name     string // namespace/name
	version  string // a hash of the content: istiod skips what has not changed by it
	revision string
	wire     *anypb.Any
}

// encode returns a resource with the given address, which may be empty.
func encode(r serviceentry.Resource, vip netip.Addr) (*resource, error) {
	spec := &networking.ServiceEntry{
		Hosts:      []string{r.Host},
		Location:   networking.ServiceEntry_MESH_INTERNAL,
		Resolution: networking.ServiceEntry_STATIC,
		ExportTo:   r.ExportTo,
		Ports:      []*networking.ServicePort{{Number: uint32(r.Port.Number), Name: r.Port.Name, Protocol: r.Port.Protocol}},
		Endpoints:  make([]*networking.WorkloadEntry, len(r.Endpoints)),
	}
	if r.External {
		spec.Location = networking.ServiceEntry_MESH_EXTERNAL
	}
	if vip.IsValid() {
		spec.Addresses = []string{vip.String()}
	}
	for i, e := range r.Endpoints {
		spec.Endpoints[i] = &networking.WorkloadEntry{
			Address: e.Address, Weight: e.Weight, Locality: e.Locality, Labels: e.Labels,
			Ports: map[string]uint32{r.Port.Name: uint32(e.Port)},
		}
	}
	return wrap(r, spec)
}

func wrap(r serviceentry.Resource, spec *networking.ServiceEntry) (*resource, error) {
	deterministic := proto.MarshalOptions{Deterministic: true}
	body, err := deterministic.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.Name, err)
	}
	out := &mcpv1.Resource{
		Metadata: &mcpv1.Metadata{
			Name: r.Namespace + "/" + r.Name, CreateTime: timestamppb.New(created()),
			Labels: r.Labels, Annotations: r.Annotations,
		},
		Body: &anypb.Any{TypeUrl: "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry", Value: body},
	}
	whole, err := deterministic.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.Name, err)
	}
	sum := sha256.Sum256(whole)
	out.Metadata.Version = hex.EncodeToString(sum[:8])
	whole, err = deterministic.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.Name, err)
	}
	return &resource{
		name: out.GetMetadata().GetName(), version: out.GetMetadata().GetVersion(), revision: r.Labels[revisionLabel],
		wire: &anypb.Any{TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: slices.Clip(whole)},
	}, nil
}
