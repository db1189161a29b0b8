package dataplane

import (
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// A generated is one resource that follows from one entry.
type generated struct {
	url, name  string
	byNameOnly bool
	message    func() proto.Message
}

// resources returns all that follows from an entry by itself: clusters and
// endpoints, and for gRPC what it asks for by name.
func resources(e Entry, rules Rules) []generated {
	var out []generated
	for _, host := range e.Spec.GetHosts() {
		for _, p := range e.Spec.GetPorts() {
			number := p.GetNumber()
			out = append(out, clustersOf(host, p, "", e.Spec.GetEndpoints())...)
			for _, s := range rules.subsets[host] {
				out = append(out, clustersOf(host, p, s.GetName(), ofSubset(e.Spec.GetEndpoints(), s))...)
			}
			if isHTTP(p) {
				out = append(out,
					generated{resource.ListenerType, listenerName(host, number), true, func() proto.Message { return apiListener(host, number) }},
					generated{resource.RouteType, clusterName(host, number, ""), true, func() proto.Message { return routeConfiguration(host, number, rules) }})
			}
		}
	}
	return out
}

// clustersOf returns the cluster of a port, or of a subset, and its endpoints.
func clustersOf(host string, p *networking.ServicePort, subset string, endpoints []*networking.WorkloadEntry) []generated {
	name := clusterName(host, p.GetNumber(), subset)
	return []generated{
		{resource.ClusterType, name, false, func() proto.Message { return cluster(name, p) }},
		{resource.EndpointType, name, false, func() proto.Message { return assignment(name, p, endpoints) }},
	}
}
