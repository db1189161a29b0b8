package istiod

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// StreamAggregatedResources serves the state of the world.
func (s *Server) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(world{stream}, false)
}

// DeltaAggregatedResources serves delta.
func (s *Server) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if s.lacksDelta() {
		return status.Errorf(codes.Unimplemented, "unknown method DeltaAggregatedResources")
	}
	return s.serve(delta{stream}, true)
}

type world struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
}

func (w world) receive() (Request, error) {
	r, err := w.Recv()
	if err != nil {
		return Request{}, err //nolint:wrapcheck // ends the stream
	}
	return Request{
		Type: r.GetTypeUrl(), Node: r.GetNode(), Nonce: r.GetResponseNonce(), Error: r.GetErrorDetail(),
		Subscribe: r.GetResourceNames(), Version: r.GetVersionInfo(),
	}, nil
}

func (w world) send(a Answer) error {
	r := &discoveryv3.DiscoveryResponse{TypeUrl: a.Type, VersionInfo: a.Version, Nonce: a.Nonce}
	for _, res := range a.Resources {
		r.Resources = append(r.Resources, res.GetResource())
	}
	return w.Send(r) //nolint:wrapcheck // ends the stream
}

type delta struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
}

func (d delta) receive() (Request, error) {
	r, err := d.Recv()
	if err != nil {
		return Request{}, err //nolint:wrapcheck // ends the stream
	}
	return Request{
		Type: r.GetTypeUrl(), Node: r.GetNode(), Nonce: r.GetResponseNonce(), Error: r.GetErrorDetail(),
		Subscribe: r.GetResourceNamesSubscribe(), Unsubscribe: r.GetResourceNamesUnsubscribe(),
		Versions: r.GetInitialResourceVersions(),
	}, nil
}

func (d delta) send(a Answer) error {
	//nolint:wrapcheck // ends the stream
	return d.Send(&discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: a.Type, SystemVersionInfo: a.Version, Nonce: a.Nonce,
		Resources: a.Resources, RemovedResources: a.Removed,
	})
}

// debugResource carries JSON as istiod does: raw bytes under the type URL.
func debugResource(name string, body []byte) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Resource: &anypb.Any{TypeUrl: DebugType, Value: body}}
}
