package dataplane

import (
	"sync"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
)

// A generated is one resource that follows from one entry.
type generated struct {
	url, name  string
	byNameOnly bool
	message    func() proto.Message
	localities *localities // nil: it is the same for all
}

// resources returns all that follows from an entry by itself: clusters and
// endpoints, and for gRPC what it asks for by name.
func resources(e Entry, rules Rules) []generated {
	var out []generated
	for _, host := range e.Spec.GetHosts() {
		for _, p := range e.Spec.GetPorts() {
			number := p.GetNumber()
			out = append(out, clustersOf(host, p, "", e.Spec.GetEndpoints(), rules)...)
			for _, s := range rules.subsets[host] {
				out = append(out, clustersOf(host, p, s.GetName(), ofSubset(e.Spec.GetEndpoints(), s), rules)...)
			}
			if isHTTP(p) {
				out = append(out,
					generated{resource.ListenerType, listenerName(host, number), true, func() proto.Message { return apiListener(host, number) }, nil},
					generated{resource.RouteType, clusterName(host, number, ""), true, func() proto.Message { return routeConfiguration(host, number, rules) }, nil})
			}
		}
	}
	return out
}

// clustersOf returns the cluster of a port, or of a subset, and its endpoints.
func clustersOf(host string, p *networking.ServicePort, subset string, endpoints []*networking.WorkloadEntry, rules Rules) []generated {
	name := clusterName(host, p.GetNumber(), subset)
	var near *localities
	if rules.near[host] {
		near = &localities{name: name, port: p, endpoints: endpoints, made: make(map[string]*anypb.Any)}
	}
	return []generated{
		{resource.ClusterType, name, false, func() proto.Message { return cluster(name, p) }, nil},
		{resource.EndpointType, name, false, func() proto.Message { return assignment(name, p, endpoints, "") }, near},
	}
}

// localities are the endpoints of a cluster for clients that prefer near ones.
type localities struct {
	name      string
	port      *networking.ServicePort
	endpoints []*networking.WorkloadEntry

	mu   sync.Mutex
	made map[string]*anypb.Any // by what a client's locality shares with any of them
}

// of returns the endpoints for a client's locality.
func (l *localities) of(client string) *anypb.Any {
	client = nearest(client, l.endpoints)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made[client] == nil {
		l.made[client] = pack(assignment(l.name, l.port, l.endpoints, client))
	}
	return l.made[client]
}
