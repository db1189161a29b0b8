package harness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// ServedEndpoint is one endpoint as a data plane is served it.
type ServedEndpoint struct {
	Weight   uint32
	Region   string
	Zone     string
	Health   string
	Priority uint32
}

// ServedCluster is a cluster as a data plane is served it.
type ServedCluster struct {
	HTTP2     bool                      // endpoints are called by HTTP/2
	Endpoints map[string]ServedEndpoint // by address
}

// ServedClusters returns what a data plane, a sidecar of namespace shop, is served of
// clusters whose names end in a suffix.
func ServedClusters(t testing.TB, address, suffix string) (map[string]ServedCluster, error) {
	t.Helper()
	s := dial(t, address)
	defer s.end()
	node := &corev3.Node{Id: "sidecar~127.0.0.1~web-1.shop~shop.svc.cluster.local"}
	all, names := make(map[string]ServedCluster), []string{}
	answer, err := s.ask(node, clusterType, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range answer.GetResources() {
		var c clusterv3.Cluster
		if err := r.UnmarshalTo(&c); err != nil {
			return nil, err
		}
		if c.GetType() == clusterv3.Cluster_EDS && strings.HasSuffix(c.GetName(), suffix) {
			names = append(names, c.GetName())
			all[c.GetName()] = ServedCluster{len(c.GetTypedExtensionProtocolOptions()) > 0, make(map[string]ServedEndpoint)}
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	if answer, err = s.ask(node, endpointType, names); err != nil {
		return nil, err
	}
	for _, r := range answer.GetResources() {
		var a endpointv3.ClusterLoadAssignment
		if err := r.UnmarshalTo(&a); err != nil {
			return nil, err
		}
		for _, l := range a.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				at := e.GetEndpoint().GetAddress().GetSocketAddress()
				all[a.GetClusterName()].Endpoints[fmt.Sprintf("%s:%d", at.GetAddress(), at.GetPortValue())] = ServedEndpoint{
					e.GetLoadBalancingWeight().GetValue(), l.GetLocality().GetRegion(), l.GetLocality().GetZone(), e.GetHealthStatus().String(), l.GetPriority(),
				}
			}
		}
	}
	return all, nil
}

// ask returns the first answer about a type.
func (s *adsStream) ask(node *corev3.Node, url string, names []string) (*discoveryv3.DiscoveryResponse, error) {
	if err := s.stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url, ResourceNames: names}); err != nil {
		return nil, err
	}
	timer := time.AfterFunc(startTime, s.end)
	defer timer.Stop()
	for {
		answer, err := s.stream.Recv()
		if err != nil || answer.GetTypeUrl() == url {
			return answer, err
		}
	}
}
