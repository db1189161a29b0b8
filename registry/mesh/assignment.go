package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unique"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Assignment is what is kept of the endpoints of a cluster. It is never
// changed; services share its endpoints.
type Assignment struct {
	Endpoints []registry.Endpoint // of all priorities, sorted, one per address
	Left      []LeftOut           // what was left out, by reason
	MutualTLS int                 // how many of Endpoints take mutual TLS
}

// LeftOut is a number of endpoints that were left out for one reason.
type LeftOut struct {
	Reason  string
	Count   int
	Example string // the address of one of them, or what stands for it
}

// String returns what status shows.
func (l LeftOut) String() string {
	s := strconv.Itoa(l.Count) + " endpoints"
	if l.Count == 1 {
		s = "1 endpoint"
	}
	if l.Example != "" {
		s += " (such as " + l.Example + ")"
	}
	return s + " left out: " + l.Reason
}

// Reading is how resources are read: which addresses are taken. It is safe
// for use by many goroutines.
type Reading struct {
	allow         []netip.Prefix
	skipMutualTLS bool
	router        bool                // istiod sends our node the endpoints of headless services
	mutualTLS     registry.Attributes // shared by all endpoints that take it
}

// NewReading returns how resources are read. Addresses that no consumer should
// be sent to (loopback, link-local, multicast, metadata services) are left out
// unless they are within allow; skipMutualTLS leaves out every endpoint that
// may refuse plaintext.
func NewReading(allow []netip.Prefix, skip MutualTLS) *Reading {
	return &Reading{
		allow: slices.Clone(allow), skipMutualTLS: skip == SkipMutualTLS,
		mutualTLS: registry.Attributes{AttributeTLS: "istio"},
	}
}

// MutualTLS says what happens to endpoints that take mutual TLS. Whether they
// take plaintext as well depends on a policy that xDS does not show.
type MutualTLS uint8

// The choices. The zero value takes them, and says so by AttributeTLS.
const (
	TakeMutualTLS MutualTLS = iota
	SkipMutualTLS
)

// DecodeAssignment is the Decode of the kind of endpoints.
func (r *Reading) DecodeAssignment(data []byte) (string, *Assignment, error) {
	var a endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(data, &a); err != nil {
		return "", nil, fmt.Errorf("endpoints: %w", err)
	}
	return a.GetClusterName(), r.assignment(&a), nil
}

func (r *Reading) assignment(a *endpointv3.ClusterLoadAssignment) *Assignment {
	n := 0
	for _, l := range a.GetEndpoints() {
		n += len(l.GetLbEndpoints())
	}
	out := &Assignment{Endpoints: make([]registry.Endpoint, 0, n)}
	for _, l := range a.GetEndpoints() { // whatever its priority: that depends on where we are, not on where consumers are
		zone := zoneOf(l.GetLocality())
		for _, lb := range l.GetLbEndpoints() {
			e, reason, example := r.endpoint(lb)
			if reason != "" {
				out.leave(reason, example)
				continue
			}
			e.Zone = zone
			out.Endpoints = append(out.Endpoints, e)
		}
	}
	out.tidy()
	return out
}

// leave counts an endpoint that is left out.
func (a *Assignment) leave(reason, example string) {
	for i := range a.Left {
		if a.Left[i].Reason == reason {
			a.Left[i].Count++
			a.Left[i].Example = min(a.Left[i].Example, example)
			return
		}
	}
	a.Left = append(a.Left, LeftOut{Reason: reason, Count: 1, Example: strings.Clone(example)})
}

// tidy sorts the endpoints and keeps one of each address: the one that may be
// offered, of the first locality. The order they came in does not matter.
func (a *Assignment) tidy() {
	slices.SortFunc(a.Endpoints, func(x, y registry.Endpoint) int {
		return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(x.Port, y.Port), rank(x)-rank(y), x.Compare(y),
			cmp.Compare(x.Zone, y.Zone), cmp.Compare(y.Weight, x.Weight), cmp.Compare(len(x.Attributes), len(y.Attributes)))
	})
	a.Endpoints = slices.Clip(slices.CompactFunc(a.Endpoints, func(x, y registry.Endpoint) bool {
		return x.Host == y.Host && x.Port == y.Port
	}))
	for i := range a.Endpoints {
		if a.Endpoints[i].Attributes[AttributeTLS] != "" {
			a.MutualTLS++
		}
	}
	slices.SortFunc(a.Left, func(x, y LeftOut) int { return cmp.Compare(x.Reason, y.Reason) })
}

func rank(e registry.Endpoint) int {
	if e.Health.Offered() {
		return 0
	}
	return 1
}

// endpoint reads one endpoint, or says why it is left out.
func (r *Reading) endpoint(lb *endpointv3.LbEndpoint) (e registry.Endpoint, reason, example string) {
	meta := metaOf(lb)
	host, port, reason := addressOf(lb, meta)
	if reason != "" {
		return e, reason, ""
	}
	example = host + ":" + strconv.Itoa(int(port))
	if reason := r.refused(host, port); reason != "" {
		return e, reason, example
	}
	if meta.tls == "istio" && meta.gateway() {
		return e, "gateway of another network, which takes mesh traffic only", example
	}
	if reason := r.mutual(meta.tls, &e); reason != "" {
		return e, reason, example
	}
	e.Host, e.Port = host, port
	e.Health = healthOf(lb.GetHealthStatus())
	e.Weight = lb.GetLoadBalancingWeight().GetValue()
	if e.Health != registry.HealthUnknown {
		e.Instance = meta.instance()
	}
	return e, "", ""
}

// mutual notes whether an endpoint takes mutual TLS, or says why it is left out
// for that.
func (r *Reading) mutual(mode string, e *registry.Endpoint) (reason string) {
	switch {
	case mode != "istio":
		return ""
	case r.skipMutualTLS:
		return "takes mutual TLS, and skipMutualTLS is set"
	}
	e.Attributes = r.mutualTLS
	return ""
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
	default: // UNHEALTHY, TIMEOUT and whatever comes later
		return registry.Unhealthy
	}
}

// zoneOf writes region/zone/subzone without the parts that are empty at its
// end.
func zoneOf(l *corev3.Locality) string {
	if l == nil {
		return ""
	}
	return unique.Make(strings.TrimRight(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")).Value()
}

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

// An EndpointSpec is an endpoint that is read elsewhere than from xDS.
type EndpointSpec struct {
	Host     string // an IP address or a host name
	Port     uint32
	Health   registry.Health
	Weight   uint32
	Zone     string // region/zone/subzone, without the parts that are empty at its end
	Instance string // namespace/name
	TLSMode  string // istio where its sidecar takes mutual TLS
	Subset   string // empty: none
	Protocol string // empty: not known
	Left     string // why it is left out, empty: it is not
}

// Assignment returns what is kept of endpoints, as of those that xDS brings.
func (r *Reading) Assignment(endpoints []EndpointSpec) *Assignment {
	out := &Assignment{Endpoints: make([]registry.Endpoint, 0, len(endpoints))}
	for _, s := range endpoints {
		e, reason := r.endpointOf(s)
		if reason != "" {
			out.leave(reason, net.JoinHostPort(s.Host, strconv.FormatUint(uint64(s.Port), 10)))
			continue
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	out.tidy()
	return out
}

// endpointOf returns the endpoint of a spec, or why it is left out.
func (r *Reading) endpointOf(s EndpointSpec) (e registry.Endpoint, reason string) {
	if s.Left != "" {
		return e, s.Left
	}
	if s.Port == 0 || s.Port > 65535 {
		return e, reasonPort
	}
	e = registry.Endpoint{Port: uint16(s.Port), Health: s.Health, Weight: s.Weight, Zone: s.Zone, Instance: s.Instance, Protocol: s.Protocol}
	if e.Host, reason = hostOf(s.Host); reason != "" {
		return e, reason
	}
	if reason = r.refused(e.Host, e.Port); reason != "" {
		return e, reason
	}
	if reason = r.mutual(s.TLSMode, &e); reason != "" {
		return e, reason
	}
	if s.Subset != "" {
		a := registry.Attributes{AttributeSubset: s.Subset}
		maps.Copy(a, e.Attributes)
		e.Attributes = a
	}
	return e, ""
}
