package harness

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Clusters returns the names of the clusters that istiod reports a new node of a
// type, which is sidecar or router.
func Clusters(t testing.TB, address, nodeType string) []string {
	t.Helper()
	s := dial(t, address)
	defer s.end()
	node := &corev3.Node{Id: nodeType + "~127.0.0.1~ask.shop~shop.svc.cluster.local"}
	must(t, s.stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: clusterType}))
	answer, err := s.stream.Recv()
	must(t, err)
	var names []string
	for _, r := range answer.GetResources() {
		var c clusterv3.Cluster
		must(t, r.UnmarshalTo(&c))
		names = append(names, c.GetName())
	}
	return names
}
