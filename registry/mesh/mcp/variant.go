package mcp

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// sotw is the state of the world, which istiod speaks: each answer is the
// whole set.
type sotw struct {
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	target *Target
}

func (w sotw) receive() (request, error) {
	r, err := w.stream.Recv()
	if err != nil {
		return request{}, err //nolint:wrapcheck // a status of grpc, or io.EOF
	}
	return request{
		node: r.GetNode(), typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(),
		isNack: r.GetErrorDetail() != nil, refused: r.GetErrorDetail().GetMessage(),
	}, nil
}

func (w sotw) send(a answer) (nothing bool, err error) {
	res := &discovery.DiscoveryResponse{TypeUrl: a.to.typeURL, VersionInfo: a.set.version, Nonce: a.nonce}
	res.Resources = make([]*anypb.Any, 0, len(a.set.content))
	for _, r := range a.set.content {
		if w.target.isFor(r, a.revision) {
			res.Resources = append(res.Resources, r.wire)
		}
	}
	return false, w.stream.Send(res) //nolint:wrapcheck // a status of grpc
}

// delta is the incremental variant: each answer is what changed.
type delta struct {
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	target *Target
}

func (d delta) receive() (request, error) {
	r, err := d.stream.Recv()
	if err != nil {
		return request{}, err //nolint:wrapcheck // a status of grpc, or io.EOF
	}
	return request{
		node: r.GetNode(), typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(), known: r.GetInitialResourceVersions(),
		isNack: r.GetErrorDetail() != nil, refused: r.GetErrorDetail().GetMessage(),
	}, nil
}

func (d delta) send(a answer) (nothing bool, err error) {
	res := &discovery.DeltaDiscoveryResponse{TypeUrl: a.to.typeURL, SystemVersionInfo: a.set.version, Nonce: a.nonce}
	first := a.before.set == nil
	had, next := a.to.known, d.versions(a.view)
	if !first {
		had = d.versions(a.before)
	}
	a.to.known = nil // from now on it is in the set that was sent, which all clients share
	for _, r := range a.set.content {
		if version, meant := next[r.name]; meant && had[r.name] != version {
			res.Resources = append(res.Resources, &discovery.Resource{Name: r.name, Version: r.version, Resource: r.wire})
		}
	}
	for name := range had {
		if _, still := next[name]; !still {
			res.RemovedResources = append(res.RemovedResources, name)
		}
	}
	if len(res.GetResources())+len(res.GetRemovedResources()) == 0 && !first {
		return true, nil
	}
	return false, d.stream.Send(res) //nolint:wrapcheck // a status of grpc
}

// versions returns the versions of what an istiod is sent, by resource.
func (d delta) versions(v view) map[string]string {
	versions := make(map[string]string, len(v.set.content))
	for _, r := range v.set.content {
		if d.target.isFor(r, v.revision) {
			versions[r.name] = r.version
		}
	}
	return versions
}

// isFor reports whether a resource is for an istiod of a revision.
func (t *Target) isFor(r *resource, revision string) bool {
	return !t.o.RevisionFilter || r.revision == "" || revision == "" || revision == r.revision
}
