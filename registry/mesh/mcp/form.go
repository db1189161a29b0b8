package mcp

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// world is the state of the world, which istiod speaks: each answer is the
// whole set.
type world struct {
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	target *Target
}

func (w world) receive() (request, error) {
	r, err := w.stream.Recv()
	if err != nil {
		return request{}, err //nolint:wrapcheck // a status of grpc, or io.EOF
	}
	return request{
		node: r.GetNode(), typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(),
		isNack: r.GetErrorDetail() != nil, refused: r.GetErrorDetail().GetMessage(),
	}, nil
}

func (w world) send(a answer) (nothing bool, err error) {
	res := &discovery.DiscoveryResponse{TypeUrl: a.to.typeURL, VersionInfo: a.set.version, Nonce: a.nonce}
	res.Resources = make([]*anypb.Any, 0, len(a.set.content))
	for _, r := range a.set.content {
		if w.target.meant(r, a.node) {
			res.Resources = append(res.Resources, r.wire)
		}
	}
	return false, w.stream.Send(res) //nolint:wrapcheck // a status of grpc
}

// differences is the incremental form: each answer is what changed.
type differences struct {
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	target *Target
}

func (d differences) receive() (request, error) {
	r, err := d.stream.Recv()
	if err != nil {
		return request{}, err //nolint:wrapcheck // a status of grpc, or io.EOF
	}
	return request{
		node: r.GetNode(), typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(), known: r.GetInitialResourceVersions(),
		isNack: r.GetErrorDetail() != nil, refused: r.GetErrorDetail().GetMessage(),
	}, nil
}

func (d differences) send(a answer) (nothing bool, err error) {
	res := &discovery.DeltaDiscoveryResponse{TypeUrl: a.to.typeURL, SystemVersionInfo: a.set.version, Nonce: a.nonce}
	next := make(map[string]string, len(a.set.content))
	for _, r := range a.set.content {
		if !d.target.meant(r, a.node) {
			continue
		}
		next[r.name] = r.version
		if a.to.known[r.name] != r.version {
			res.Resources = append(res.Resources, &discovery.Resource{Name: r.name, Version: r.version, Resource: r.wire})
		}
	}
	for name := range a.to.known {
		if _, still := next[name]; !still {
			res.RemovedResources = append(res.RemovedResources, name)
		}
	}
	a.to.known = next
	if len(res.GetResources())+len(res.GetRemovedResources()) == 0 && !a.first {
		return true, nil
	}
	return false, d.stream.Send(res) //nolint:wrapcheck // a status of grpc
}

// meant reports whether a resource is for an istiod.
func (t *Target) meant(r *resource, node *corev3.Node) bool {
	if !t.o.RevisionFilter || r.revision == "" {
		return true
	}
	revision := node.GetMetadata().GetFields()["ISTIO_REVISION"].GetStringValue()
	return revision == "" || revision == r.revision
}
