package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unique"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

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
