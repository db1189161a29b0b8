package dataplane

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// routeConfiguration returns the routes of one host, as gRPC asks for them.
func routeConfiguration(host string, port uint32, rules Rules) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name:             clusterName(host, port, ""),
		VirtualHosts:     []*routev3.VirtualHost{virtualHost(host, port, nil, rules)},
		ValidateClusters: wrapperspb.Bool(false),
	}
}

// virtualHost returns the routes of a host and its addresses.
func virtualHost(host string, port uint32, addresses []string, rules Rules) *routev3.VirtualHost {
	h := &routev3.VirtualHost{Name: listenerName(host, port), Domains: []string{host, listenerName(host, port)}}
	for _, a := range addresses {
		h.Domains = append(h.Domains, a, joinHostPort(a, port))
	}
	all := action()
	all.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: clusterName(host, port, "")}
	h.Routes = append(rules.of(host, port), &routev3.Route{
		Name:   "default",
		Match:  pathOf(nil),
		Action: &routev3.Route_Route{Route: all},
	})
	return h
}

// action returns a way to clusters that are yet to be named. Envoy's own timeout
// is 15 s; the calls of RPC frameworks have one of theirs. What no endpoint took
// is tried again.
func action() *routev3.RouteAction {
	const retries = 2 // istio's
	return &routev3.RouteAction{
		Timeout:     durationpb.New(0),
		RetryPolicy: &routev3.RetryPolicy{RetryOn: "connect-failure,refused-stream", NumRetries: wrapperspb.UInt32(retries)},
	}
}
