package dataplane

import (
	"net"
	"net/netip"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func joinHostPort(address string, port uint32) string {
	return net.JoinHostPort(address, strconv.FormatUint(uint64(port), 10))
}

// apiListener returns the listener that gRPC requests for xds:///host:port.
func apiListener(host string, port uint32) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:        listenerName(host, port),
		ApiListener: &listenerv3.ApiListener{ApiListener: connectionManager("outbound", clusterName(host, port, ""))},
	}
}

// connectionManager returns the HTTP filter that uses the routes of a name.
func connectionManager(prefix, routes string) *anypb.Any {
	return pack(&hcmv3.HttpConnectionManager{
		StatPrefix: prefix,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{RouteConfigName: routes, ConfigSource: adsConfigSource()},
		},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})},
		}},
		UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
	})
}

// A listenerPort is a port number with its hosts, as one namespace sees them.
type listenerPort struct {
	number uint32
	hosts  []listenerHost // sorted by name
}

// A listenerHost is a host at a port. HTTP requests are routed to it by name, other calls by
// address.
type listenerHost struct {
	name      string
	addresses []string
	http      bool
}

// envoyRoutesName returns the name of the routes of a port, the same as Istio's.
func envoyRoutesName(number uint32) string { return strconv.FormatUint(uint64(number), 10) }

// envoyListenerName returns the name of the listener of a port, the same as Istio's.
func envoyListenerName(number uint32, vips netip.Prefix) string {
	return anyAddress(vips) + "_" + envoyRoutesName(number)
}

// anyAddress returns the wildcard address, 0.0.0.0 or ::.
func anyAddress(vips netip.Prefix) string {
	if vips.IsValid() && vips.Addr().Is6() {
		return "::"
	}
	return "0.0.0.0"
}

// listener returns Envoy's listener at the port, or nil if no host needs one. It accepts calls
// to virtual addresses and HTTP calls from its own machine. Other machines must not reach
// services through it.
func (p listenerPort) listener(vips netip.Prefix) *listenerv3.Listener {
	l := &listenerv3.Listener{
		Name:             envoyListenerName(p.number, vips),
		Address:          socketAddress(anyAddress(vips), p.number),
		TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		ListenerFilters: []*listenerv3.ListenerFilter{{
			Name:       "envoy.filters.listener.original_dst",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: pack(&originaldstv3.OriginalDst{})},
		}},
	}
	http := false
	for _, h := range p.hosts {
		http = http || h.http
		if ranges := addressRanges(h.addresses); !h.http && len(ranges) > 0 {
			proxy := pack(&tcpv3.TcpProxy{
				StatPrefix: h.name, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: clusterName(h.name, p.number, "")},
			})
			l.FilterChains = append(l.FilterChains, filterChain(h.name, ranges, "envoy.filters.network.tcp_proxy", proxy))
		}
	}
	if http {
		own := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		if vips.IsValid() {
			own = append(own, vips)
		}
		manager := connectionManager("outbound_"+l.GetName(), envoyRoutesName(p.number))
		l.FilterChains = append(l.FilterChains,
			filterChain("http", cidrRanges(own), "envoy.filters.network.http_connection_manager", manager))
	}
	if len(l.GetFilterChains()) == 0 {
		return nil
	}
	return l
}

// filterChain returns a chain of one filter for calls to some addresses.
func filterChain(name string, ranges []*corev3.CidrRange, filter string, config *anypb.Any) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		Name: name, FilterChainMatch: &listenerv3.FilterChainMatch{PrefixRanges: ranges},
		Filters: []*listenerv3.Filter{{Name: filter, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}},
	}
}

// addressRanges parses IP addresses and prefixes. It leaves out other texts.
func addressRanges(addresses []string) []*corev3.CidrRange {
	var all []netip.Prefix
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		} else if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return cidrRanges(all)
}

func cidrRanges(all []netip.Prefix) []*corev3.CidrRange {
	out := make([]*corev3.CidrRange, len(all))
	for i, p := range all {
		bits := uint32(p.Bits()) //nolint:gosec // up to 128
		out[i] = &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(bits)}
	}
	return out
}

// routes returns Envoy's routes of all HTTP hosts at the port, or nil if there are none.
func (p listenerPort) routes(rules Rules) *routev3.RouteConfiguration {
	c := &routev3.RouteConfiguration{Name: envoyRoutesName(p.number), ValidateClusters: wrapperspb.Bool(false)}
	for _, h := range p.hosts {
		if h.http {
			c.VirtualHosts = append(c.VirtualHosts, virtualHost(h.name, p.number, h.addresses, rules, envoyClient))
		}
	}
	if len(c.GetVirtualHosts()) == 0 {
		return nil
	}
	return c
}

// routeConfiguration returns the routes of one host for gRPC.
func routeConfiguration(host string, port uint32, rules Rules) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name:             clusterName(host, port, ""),
		VirtualHosts:     []*routev3.VirtualHost{virtualHost(host, port, nil, rules, grpcClient)},
		ValidateClusters: wrapperspb.Bool(false),
	}
}

// virtualHost returns the routes of a host at a port for a kind of data plane: those of the
// rules, and a last one to all endpoints.
func virtualHost(
	host string, port uint32, addresses []string, rules Rules, by clientKind,
) *routev3.VirtualHost {
	h := &routev3.VirtualHost{Name: listenerName(host, port), Domains: []string{host, listenerName(host, port)}}
	for _, a := range addresses {
		h.Domains = append(h.Domains, a, joinHostPort(a, port))
	}
	all := newRouteAction()
	all.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: clusterName(host, port, "")}
	h.Routes = append(rules.routesTo(host, port, by), &routev3.Route{
		Name:   "default",
		Match:  pathCondition(nil),
		Action: &routev3.Route_Route{Route: all},
	})
	return h
}

// newRouteAction returns a route action without a cluster. It has no timeout, because RPC
// frameworks have their own; Envoy's default is 15 s. Calls that no endpoint accepted are
// retried.
func newRouteAction() *routev3.RouteAction {
	const retries = 2 // the same as Istio's
	return &routev3.RouteAction{
		Timeout:     durationpb.New(0),
		RetryPolicy: &routev3.RetryPolicy{RetryOn: "connect-failure,refused-stream", NumRetries: wrapperspb.UInt32(retries)},
	}
}
