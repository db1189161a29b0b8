package mesh

import (
	"maps"
	"net/netip"
	"strings"
	"unique"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// modeMutual is the TLS mode of an endpoint with a sidecar.
const modeMutual = "istio"

// EndpointSpec is an endpoint before its address was checked.
type EndpointSpec struct {
	Host     string // an IP address or a host name
	Port     uint32
	Health   registry.Health
	Weight   uint32
	Zone     string // region/zone/subzone, without empty parts at the end
	Instance string // namespace/name
	TLSMode  string // istio: its sidecar accepts mutual TLS
	Subset   string // empty: none
	Protocol string // empty: unknown
	Skip     string // why it has to be left out; empty: it does not

	gateway bool // it is the gateway of another network
}

// checkedEndpoint returns the endpoint of a spec, or the reason why it is left out. In the
// second case Host is set if it is valid.
func (d *Decoder) checkedEndpoint(s EndpointSpec) (e registry.Endpoint, reason string) {
	switch {
	case s.Skip != "":
		return e, s.Skip
	case s.Port == 0 || s.Port > 65535:
		return e, reasonPort
	}
	e = registry.Endpoint{
		Port: uint16(s.Port), Health: s.Health, Weight: s.Weight,
		Zone: s.Zone, Instance: s.Instance, Protocol: s.Protocol,
	}
	if e.Host, reason = HostOf(s.Host); reason != "" {
		return e, reason
	}
	if reason = (naming.Reach{Allow: d.allow}).Refuse(e.Host); reason != "" {
		return e, reason
	}
	if s.TLSMode == modeMutual {
		switch {
		case s.gateway:
			return e, reasonGateway
		case d.skipMutualTLS:
			return e, reasonMutualTLS
		}
		e.Attributes = d.mutualTLS
	}
	if s.Subset != "" {
		a := registry.Attributes{AttributeSubset: s.Subset}
		maps.Copy(a, e.Attributes)
		e.Attributes = a
	}
	return e, ""
}

// HostOf returns the canonical form of the host of an endpoint: the shortest form of an IP
// address, or a name in lower case. Otherwise it returns the reason why it is neither.
func HostOf(s string) (host, reason string) {
	if ip, err := netip.ParseAddr(s); err == nil {
		if ip.Zone() != "" {
			return "", reasonZone
		}
		return ip.Unmap().String(), ""
	}
	a := naming.HostAddress{Host: s, Port: 1}
	a, err := naming.ParseHostAddress(a.String())
	if err != nil || strings.ContainsAny(s, ":[]") {
		return "", reasonHost
	}
	return a.Host, ""
}

// endpointSpecOf returns the spec of an endpoint from xDS.
func endpointSpecOf(lb *endpointv3.LbEndpoint, zone string) EndpointSpec {
	filters := lb.GetMetadata().GetFilterMetadata()
	s := EndpointSpec{
		Health: healthOf(lb.GetHealthStatus()), Weight: lb.GetLoadBalancingWeight().GetValue(), Zone: zone,
		TLSMode: filters["envoy.transport_socket_match"].GetFields()["tlsMode"].GetStringValue(),
	}
	s.setWorkload(filters["istio"].GetFields()["workload"].GetStringValue())
	switch a := lb.GetEndpoint().GetAddress(); {
	case a.GetSocketAddress() != nil:
		s.Host, s.Port = a.GetSocketAddress().GetAddress(), a.GetSocketAddress().GetPortValue()
	case a.GetEnvoyInternalAddress() != nil:
		s.setTunnelled(a.GetEnvoyInternalAddress().GetEndpointId(),
			filters["envoy.filters.listener.original_dst"].GetFields()["local"].GetStringValue())
	case a.GetPipe() != nil:
		s.Skip = reasonPipe
	default:
		s.Skip = reasonNoAddress
	}
	return s
}

// setWorkload reads istiod's description of a workload, which has the form
// name;namespace;canonical name;revision;cluster. An endpoint that accepts mutual TLS and has
// no name is the gateway of another network.
//
// The name of a Kubernetes endpoint is that of its pod, and becomes the instance. The name of
// an endpoint of a ServiceEntry is its position in a list, which may change, and is ignored.
func (s *EndpointSpec) setWorkload(workload string) {
	s.gateway = strings.HasPrefix(workload, ";;")
	parts := strings.SplitN(workload, ";", 3)
	if len(parts) == 3 && parts[0] != "" && s.Health != registry.HealthUnknown {
		s.Instance = parts[1] + "/" + parts[0]
	}
}

// setTunnelled sets the address behind a tunnel: the first valid one of addresses.
func (s *EndpointSpec) setTunnelled(addresses ...string) {
	for _, text := range addresses {
		if a, err := netip.ParseAddrPort(text); err == nil && a.Port() != 0 && a.Addr().Zone() == "" {
			s.Host, s.Port = a.Addr().String(), uint32(a.Port())
			return
		}
	}
	s.Skip = reasonInternal
}

func healthOf(h corev3.HealthStatus) registry.Health {
	switch h {
	case corev3.HealthStatus_UNKNOWN:
		return registry.HealthUnknown
	case corev3.HealthStatus_HEALTHY:
		return registry.Healthy
	case corev3.HealthStatus_DEGRADED:
		return registry.Degraded
	case corev3.HealthStatus_DRAINING:
		return registry.Draining
	default: // UNHEALTHY, TIMEOUT, and values of later versions
		return registry.Unhealthy
	}
}

// zoneOfLocality returns region/zone/subzone, without empty parts at the end.
func zoneOfLocality(l *corev3.Locality) string {
	if l == nil {
		return ""
	}
	return unique.Make(strings.TrimRight(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")).Value()
}

// The reasons why an endpoint is left out.
const (
	reasonPipe      = "unix socket, which no other machine can call"
	reasonInternal  = "tunnelled, and the address behind the tunnel is unknown"
	reasonNoAddress = "has no address"
	reasonPort      = "port must be between 1 and 65535"
	reasonHost      = "neither an IP address nor a host name"
	reasonZone      = "IPv6 zone, which has no meaning on other machines"
	reasonGateway   = "gateway of another network, which accepts only mesh traffic"
	reasonMutualTLS = "accepts mutual TLS, and skipMutualTLS is set"
)
