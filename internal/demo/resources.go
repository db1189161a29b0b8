package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
)

// The resources are those that istiod makes for a router node, as far as the bridge reads them.

// clusterName returns a name in istiod's form: outbound|port|subset|host.
func clusterName(s service, subset string) string {
	return fmt.Sprintf("outbound|%d|%s|%s", s.Port, subset, s.Host)
}

// names returns the name and namespace in the service's host.
func (s service) names() (name, namespace string) {
	name, rest, _ := strings.Cut(s.Host, ".")
	namespace, _, _ = strings.Cut(rest, ".")
	return name, namespace
}

// subsets returns the names of the service's subsets, the empty one first.
func (s service) subsets() []string {
	names := map[string]bool{"": true}
	for _, e := range s.Endpoints {
		names[e.Subset] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// clusters returns all clusters.
func (m *meshFile) clusters() []*clusterv3.Cluster {
	var all []*clusterv3.Cluster
	for _, s := range m.Services {
		for _, subset := range s.subsets() {
			all = append(all, s.cluster(subset))
		}
	}
	return all
}

func (s service) cluster(subset string) *clusterv3.Cluster {
	_, namespace := s.names()
	fields := map[string]*structpb.Value{
		"services": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
			structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				"host":      structpb.NewStringValue(s.Host),
				"name":      structpb.NewStringValue(s.Host),
				"namespace": structpb.NewStringValue(namespace),
			}}),
		}}),
	}
	if subset != "" {
		fields["subset"] = structpb.NewStringValue(subset)
	}
	name := clusterName(s, subset)
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{
			ServiceName: name,
			EdsConfig: &corev3.ConfigSource{
				ResourceApiVersion:    corev3.ApiVersion_V3,
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			},
		},
		Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: fields}}},
	}
}

// assignments returns the endpoints of all clusters.
func (m *meshFile) assignments() []*endpointv3.ClusterLoadAssignment {
	var all []*endpointv3.ClusterLoadAssignment
	for _, s := range m.Services {
		for _, subset := range s.subsets() {
			all = append(all, s.assignment(subset))
		}
	}
	return all
}

func (s service) assignment(subset string) *endpointv3.ClusterLoadAssignment {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: clusterName(s, subset)}
	zones := make(map[string]*endpointv3.LocalityLbEndpoints)
	for _, e := range s.Endpoints {
		if subset != "" && e.Subset != subset {
			continue
		}
		z, ok := zones[e.Zone]
		if !ok {
			z = &endpointv3.LocalityLbEndpoints{Locality: locality(e.Zone), LoadBalancingWeight: wrapperspb.UInt32(0)}
			zones[e.Zone] = z
		}
		lb := e.resource(s)
		z.LoadBalancingWeight.Value += lb.GetLoadBalancingWeight().GetValue()
		z.LbEndpoints = append(z.LbEndpoints, lb)
	}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		a.Endpoints = append(a.Endpoints, zones[zone])
	}
	return a
}

func locality(zone string) *corev3.Locality {
	parts := append(strings.Split(zone, "/"), "", "")
	return &corev3.Locality{Region: parts[0], Zone: parts[1], SubZone: parts[2]}
}

func (e endpoint) resource(s service) *endpointv3.LbEndpoint {
	name, namespace := s.names()
	health, _ := healthOf(e.Health)
	workload := strings.Join([]string{name + "-" + e.Address, namespace, name, cmp.Or(e.Subset, "latest"), "Kubernetes"}, ";")
	return &endpointv3.LbEndpoint{
		HealthStatus:        health,
		LoadBalancingWeight: wrapperspb.UInt32(cmp.Or(e.Weight, 1)),
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address:       e.Address,
				PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(cmp.Or(e.Port, s.Port))},
			}}},
		}},
		Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"istio": {Fields: map[string]*structpb.Value{"workload": structpb.NewStringValue(workload)}},
		}},
	}
}

// healthOf returns istiod's name of a health. istiod does not report healthy.
func healthOf(health string) (corev3.HealthStatus, bool) {
	switch health {
	case "", "healthy":
		return corev3.HealthStatus_UNKNOWN, true
	case "degraded":
		return corev3.HealthStatus_DEGRADED, true
	case "unhealthy":
		return corev3.HealthStatus_UNHEALTHY, true
	case "draining":
		return corev3.HealthStatus_DRAINING, true
	default:
		return corev3.HealthStatus_UNKNOWN, false
	}
}

// clients returns one client for each service that publishes keys: its provider, connected since the
// given time.
func (m *meshFile) clients(since time.Time) []istiodfake.Client {
	var list []istiodfake.Client
	for i, s := range m.Services {
		if len(s.Keys) == 0 {
			continue
		}
		address := fmt.Sprintf("%s:%d", s.Host, s.Port)
		published := make(map[string]string, len(s.Keys))
		for _, key := range s.Keys {
			published[key] = address
		}
		label, err := json.Marshal(published)
		if err != nil {
			panic(err) // a map of strings is always JSON
		}
		name, namespace := s.names()
		list = append(list, istiodfake.Client{
			ID: fmt.Sprintf("%s-0.%s-%d", name, namespace, i+1), ConnectedAt: since, Address: "10.244.0.1:40000",
			Metadata: map[string]any{"NAMESPACE": namespace, "LABELS": map[string]string{"app": name, "DUBBO_GO": string(label)}},
		})
	}
	return list
}
