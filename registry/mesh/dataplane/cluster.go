package dataplane

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

const (
	connectTimeout = 10 * time.Second // the same as Istio's
	httpOptions    = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
)

// adsConfigSource refers to a resource on the same stream.
func adsConfigSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// cluster returns the cluster of a port, or of a subset of its endpoints.
func cluster(name string, port *networking.ServicePort) *clusterv3.Cluster {
	const unlimited = math.MaxUint32 // the same as Istio's; Envoy's default is 1,024
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: adsConfigSource(), ServiceName: name},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LbPolicy:             clusterv3.Cluster_ROUND_ROBIN,
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections: wrapperspb.UInt32(unlimited), MaxPendingRequests: wrapperspb.UInt32(unlimited),
			MaxRequests: wrapperspb.UInt32(unlimited), MaxRetries: wrapperspb.UInt32(unlimited),
		}}},
	}
	if isHTTP2(port) {
		explicit := &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
			},
		}
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptions: pack(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: explicit},
		})}
	}
	return c
}

// pack wraps a message. It panics if the message cannot be encoded, which never happens with
// texts in UTF-8.
func pack(m proto.Message) *anypb.Any {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err) // all texts were decoded from JSON or a message, and so are UTF-8
	}
	return &anypb.Any{TypeUrl: "type.googleapis.com/" + string(proto.MessageName(m)), Value: value}
}

// subsetEndpoints returns the endpoints of a subset.
func subsetEndpoints(endpoints []*networking.WorkloadEntry, s *networking.Subset) []*networking.WorkloadEntry {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e *networking.WorkloadEntry) bool {
		return !hasLabels(e.GetLabels(), s.GetLabels())
	})
}

// hasLabels reports whether labels include all others.
func hasLabels(labels, others map[string]string) bool {
	for k, v := range others {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// A localityShare identifies the endpoints of a locality that have the same weight.
type localityShare struct {
	locality string
	weight   uint32
}

// assignment returns the endpoints of a cluster for a client in a locality, which may be
// empty. Near endpoints have higher priorities.
//
// gRPC balances between localities by weight, but evenly within one. Therefore endpoints of
// different weights are put into different localities. Envoy uses the weights of the
// endpoints.
func assignment(
	name string, port *networking.ServicePort, endpoints []*networking.WorkloadEntry, client string,
) *endpointv3.ClusterLoadAssignment {
	shares := make(map[localityShare][]*endpointv3.LbEndpoint)
	weights := make(map[string]int) // number of shares by locality
	for _, e := range endpoints {
		s := localityShare{e.GetLocality(), max(e.GetWeight(), 1)}
		if shares[s] == nil {
			weights[s.locality]++
		}
		shares[s] = append(shares[s], lbEndpoint(e, port, s.weight))
	}
	divisor, distances := weightDivisor(shares), []int{}
	out := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	for _, s := range slices.SortedFunc(maps.Keys(shares), func(a, b localityShare) int {
		return cmp.Or(distance(client, a.locality)-distance(client, b.locality),
			cmp.Compare(a.locality, b.locality), cmp.Compare(a.weight, b.weight))
	}) {
		if d := distance(client, s.locality); !slices.Contains(distances, d) {
			distances = append(distances, d) // the index is the priority, because priorities must have no gaps
		}
		locality := localityOf(s.locality)
		if weights[s.locality] > 1 {
			locality.SubZone += "/weight-" + strconv.FormatUint(uint64(s.weight), 10)
		}
		total := max(uint64(s.weight)*uint64(len(shares[s]))/divisor, 1)
		if divisor > 1 {
			weight := uint32(max(uint64(s.weight)/divisor, 1)) //nolint:gosec // less than s.weight
			for _, e := range shares[s] {
				e.LoadBalancingWeight = wrapperspb.UInt32(weight)
			}
		}
		out.Endpoints = append(out.Endpoints, &endpointv3.LocalityLbEndpoints{
			Locality: locality, LbEndpoints: shares[s],
			LoadBalancingWeight: wrapperspb.UInt32(uint32(total)), //nolint:gosec // bounded by weightDivisor
			Priority:            uint32(len(distances) - 1),       //nolint:gosec // up to 3
		})
	}
	return out
}

// distance returns how far a locality is from a client's: 0 for the same locality, 1 for the
// same zone, 2 for the same region, and else 3. It is 0 if the client has no locality.
func distance(client, locality string) int {
	if client == "" {
		return 0
	}
	a, b := localityOf(client), localityOf(locality)
	switch {
	case a.GetRegion() != b.GetRegion():
		return 3 //nolint:mnd // region, zone and sub-zone differ
	case a.GetZone() != b.GetZone():
		return 2 //nolint:mnd // zone and sub-zone differ
	case a.GetSubZone() != b.GetSubZone():
		return 1
	}
	return 0
}

// sharedLocality returns the longest part of a client's locality that it shares with an
// endpoint. All clients with the same part have the same distances to the endpoints.
func sharedLocality(client string, endpoints []*networking.WorkloadEntry) string {
	const parts = 3
	least := parts
	for _, e := range endpoints {
		least = min(least, distance(client, e.GetLocality()))
	}
	split := strings.SplitN(client, "/", parts)
	return strings.Join(split[:min(parts-least, len(split))], "/")
}

// weightDivisor returns the divisor with which the sum of all weights fits into 32 bits.
func weightDivisor(shares map[localityShare][]*endpointv3.LbEndpoint) uint64 {
	const room = math.MaxUint32 / 2 // half, because weights that would become 0 are set to 1
	var sum uint64
	for s, endpoints := range shares {
		sum += uint64(s.weight) * uint64(len(endpoints))
	}
	return max((sum+room-1)/room, 1)
}

func localityOf(s string) *corev3.Locality {
	parts := append(strings.SplitN(s, "/", 3), "", "")
	return &corev3.Locality{Region: parts[0], Zone: parts[1], SubZone: parts[2]}
}

// lbEndpoint returns an endpoint without a health status, as istiod does: unhealthy endpoints
// are not served.
func lbEndpoint(e *networking.WorkloadEntry, port *networking.ServicePort, weight uint32) *endpointv3.LbEndpoint {
	number := cmp.Or(e.GetPorts()[port.GetName()], port.GetTargetPort(), port.GetNumber())
	return &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: socketAddress(e.GetAddress(), number)},
		},
		LoadBalancingWeight: wrapperspb.UInt32(weight),
	}
}

func socketAddress(address string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// A generatedResource is a resource that is derived from one entry.
type generatedResource struct {
	url, name  string
	byNameOnly bool // as in storedResource
	message    func() proto.Message
	localities *localityAssignments // as in storedResource
}

// resourcesOf returns the resources derived from one entry: clusters and endpoints, and the
// listeners and routes that gRPC requests by name.
func resourcesOf(e Entry, rules Rules) []generatedResource {
	var out []generatedResource
	for _, host := range e.Spec.GetHosts() {
		for _, p := range e.Spec.GetPorts() {
			number := p.GetNumber()
			out = append(out, clustersOf(host, p, "", e.Spec.GetEndpoints(), rules)...)
			for _, s := range rules.subsets[host] {
				out = append(out, clustersOf(host, p, s.GetName(), subsetEndpoints(e.Spec.GetEndpoints(), s), rules)...)
			}
			if isHTTP(p) {
				out = append(out, generatedResource{
					url: resource.ListenerType, name: listenerName(host, number), byNameOnly: true,
					message: func() proto.Message { return apiListener(host, number) },
				}, generatedResource{
					url: resource.RouteType, name: clusterName(host, number, ""), byNameOnly: true,
					message: func() proto.Message { return routeConfiguration(host, number, rules) },
				})
			}
		}
	}
	return out
}

// clustersOf returns the cluster of a port or subset, and its endpoints.
func clustersOf(
	host string, p *networking.ServicePort, subset string, endpoints []*networking.WorkloadEntry, rules Rules,
) []generatedResource {
	name := clusterName(host, p.GetNumber(), subset)
	var near *localityAssignments
	if rules.near[host] {
		near = &localityAssignments{
			name: name, port: p, endpoints: endpoints, byLocality: make(map[string]*anypb.Any),
		}
	}
	return []generatedResource{
		{url: resource.ClusterType, name: name, message: func() proto.Message { return cluster(name, p) }},
		{
			url: resource.EndpointType, name: name, localities: near,
			message: func() proto.Message { return assignment(name, p, endpoints, "") },
		},
	}
}

// localityAssignments has the endpoints of a cluster whose near endpoints are preferred. It
// encodes them for each locality of a client.
type localityAssignments struct {
	// Immutable.
	name      string
	port      *networking.ServicePort
	endpoints []*networking.WorkloadEntry

	// Guarded by mu.
	mu         sync.Mutex
	byLocality map[string]*anypb.Any // by the result of sharedLocality
}

// assignmentFor returns the encoded endpoints for a client in a locality.
func (l *localityAssignments) assignmentFor(client string) *anypb.Any {
	client = sharedLocality(client, l.endpoints)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byLocality[client] == nil {
		l.byLocality[client] = pack(assignment(l.name, l.port, l.endpoints, client))
	}
	return l.byLocality[client]
}
