package mesh

import (
	"net/netip"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xds-bridge/xds-bridge/naming"
)

// meta is what istiod says of an endpoint beside its address.
type meta struct {
	tls      string // istio where the endpoint has a sidecar
	workload string // name;namespace;canonical name;revision;cluster
	original string // the address behind a tunnel
}

func metaOf(lb *endpointv3.LbEndpoint) meta {
	filters := lb.GetMetadata().GetFilterMetadata()
	return meta{
		tls:      filters["envoy.transport_socket_match"].GetFields()["tlsMode"].GetStringValue(),
		workload: filters["istio"].GetFields()["workload"].GetStringValue(),
		original: filters["envoy.filters.listener.original_dst"].GetFields()["local"].GetStringValue(),
	}
}

// gateway reports whether the endpoint is the gateway of another network:
// istiod names the workload behind every other endpoint that takes mutual TLS.
func (m meta) gateway() bool { return strings.HasPrefix(m.workload, ";;") }

// instance returns namespace/name of the workload: of a Kubernetes endpoint
// the pod, which all its ports share. It must not be used for endpoints of a
// ServiceEntry, whose names are positions in a list and move when it changes.
func (m meta) instance() string {
	parts := strings.SplitN(m.workload, ";", 3)
	if len(parts) < 3 || parts[0] == "" {
		return ""
	}
	return parts[1] + "/" + parts[0]
}

// The reasons why an address is left out.
const (
	reasonPipe     = "unix socket, which no other machine can call"
	reasonInternal = "tunnelled, without the address behind the tunnel"
	reasonNone     = "has no address of its own"
	reasonPort     = "port is not within 1 to 65535"
	reasonHost     = "neither an IP address nor a host name"
)

// addressOf returns host and port of an endpoint, of several addresses the
// primary one, or why there is none.
func addressOf(lb *endpointv3.LbEndpoint, m meta) (host string, port uint16, reason string) {
	a := lb.GetEndpoint().GetAddress()
	switch {
	case a.GetSocketAddress() != nil:
		s := a.GetSocketAddress()
		n := s.GetPortValue()
		if n == 0 || n > 65535 {
			return "", 0, reasonPort
		}
		host, reason = hostOf(s.GetAddress())
		return host, uint16(n), reason
	case a.GetEnvoyInternalAddress() != nil:
		for _, text := range []string{a.GetEnvoyInternalAddress().GetEndpointId(), m.original} {
			if ap, err := netip.ParseAddrPort(text); err == nil && ap.Port() != 0 && ap.Addr().Zone() == "" {
				return ap.Addr().Unmap().String(), ap.Port(), ""
			}
		}
		return "", 0, reasonInternal
	case a.GetPipe() != nil:
		return "", 0, reasonPipe
	default:
		return "", 0, reasonNone
	}
}

// hostOf returns a host in its one form: an IP address in its shortest, a name
// in lower case.
func hostOf(s string) (host, reason string) {
	if ip, err := netip.ParseAddr(s); err == nil {
		if ip.Zone() != "" {
			return "", "IPv6 zone, which means nothing on another machine"
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

// refused says why an address must not be offered, empty if it may be.
func (r *Reading) refused(host string, port uint16) string {
	if port == 0 {
		return reasonPort
	}
	return naming.Reach{Allow: r.allow}.Refuse(host)
}
