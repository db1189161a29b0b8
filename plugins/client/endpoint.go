package client

import (
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Attributes of the mesh, as package registry/mesh has them, which brings its SDKs.
const (
	attributeHost   = "meshHostAddr"
	attributeSubset = "meshSubset"
)

// Weight is the part of the calls that an instance is to have, in relation to others.
// The zero Weight is not reported, and counts as that of a normal instance.
type Weight struct{ hundredths, reported uint32 }

// WeightOf returns a weight: 1 is that of a normal instance, 2 twice as many calls, and
// 0 none while there are others. What is negative or no number is 0.
func WeightOf(part float64) Weight {
	switch {
	case math.IsNaN(part), part <= 0:
		return Weight{0, 1}
	case part >= math.MaxUint32/convert.Normal:
		return Weight{math.MaxUint32, 1}
	}
	return Weight{max(uint32(math.Round(part*convert.Normal)), 1), 1}
}

// Part returns what WeightOf was called with, to a hundredth; 1 for one that is not
// reported.
func (w Weight) Part() float64 { return float64(w.share()) / convert.Normal }

// Reported reports whether the weight was given.
func (w Weight) Reported() bool { return w.reported > 0 }

// share is the part in hundredths.
func (w Weight) share() uint32 {
	if !w.Reported() {
		return convert.Normal
	}
	return w.hundredths
}

// weightOf returns the weight of an endpoint, which in the mesh is in the unit of istio.
func weightOf(e registry.Endpoint, inMesh bool) Weight {
	switch {
	case e.ZeroWeight:
		return Weight{0, 1}
	case e.Weight == 0:
		return Weight{}
	case inMesh:
		return Weight{convert.FromMesh(e.Weight), 1}
	}
	return Weight{e.Weight, 1}
}

// Interface is one RPC contract.
type Interface struct{ Name, Version, Group string }

// A Router says which subset of its service a call goes to; empty: any. Random returns a
// number below n.
type Router interface {
	Subset(path string, header func(name string) (string, bool), random func(n uint64) uint64) string
}

// Endpoint is an address that a call may go to. It is a value: what is done to it
// concerns no other.
type Endpoint struct {
	Host        string // an IP address without brackets
	Port        uint16
	Protocol    string // the RPC protocol; empty: not reported
	Application string // that it is of; may be empty
	Service     string // its name in the registry: in the mesh its host and port
	Zone        string // region/zone/subzone, as far as reported
	Weight      Weight

	// Router divides the calls of the service among its subsets, as the mesh has it; nil
	// elsewhere and where any endpoint may be called. Subsets are those it is in.
	Router  Router
	Subsets []string

	of          *registry.Service
	at          registry.Endpoint
	unconfirmed bool // not reported since the registry is back
}

func endpointOf(s *registry.Service, e registry.Endpoint) Endpoint {
	out := Endpoint{
		Host: e.Host, Port: e.Port, Protocol: e.Protocol, Application: s.Application, Service: string(s.Name), Zone: e.Zone,
		of: s, at: e,
	}
	if out.Protocol == "" {
		out.Protocol = s.Protocol
	}
	out.Weight = weightOf(e, out.Attribute(attributeHost) != "")
	if subsets := out.Attribute(attributeSubset); subsets != "" {
		out.Subsets = strings.Split(subsets, ",")
	}
	return out
}

// Address returns host and port, an IPv6 host in brackets.
func (e Endpoint) Address() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Interfaces are the contracts of its service.
func (e Endpoint) Interfaces() []Interface {
	if e.of == nil {
		return nil
	}
	all := make([]Interface, 0, len(e.of.Interfaces))
	for _, i := range e.of.Interfaces {
		all = append(all, Interface(i))
	}
	return all
}

// Attribute returns what the endpoint, or else its service, says under a name.
func (e Endpoint) Attribute(name string) string {
	if v, ok := e.at.Attributes[name]; ok || e.of == nil {
		return v
	}
	return e.of.Attributes[name]
}

// Attributes returns what Attribute does for every name, in a map of the caller's own.
func (e Endpoint) Attributes() map[string]string {
	all := make(map[string]string, len(e.at.Attributes))
	if e.of != nil {
		maps.Copy(all, e.of.Attributes)
	}
	maps.Copy(all, e.at.Attributes)
	return all
}

// Subset returns which subset of its service the routes of the mesh send a call to;
// empty for anywhere. A path is that of HTTP, as "/api.Greeter/Hello".
func (e Endpoint) Subset(path string, header func(name string) (string, bool)) string {
	if e.Router == nil {
		return ""
	}
	return e.Router.Subset(path, header, rand.Uint64N)
}

// In reports whether the endpoint is in a subset of a service.
func (e Endpoint) In(service, subset string) bool {
	return e.Service == service && slices.Contains(e.Subsets, subset)
}

// same reports whether two endpoints lead calls to the same place in the same way.
func (e Endpoint) same(o Endpoint) bool {
	if e.of == nil || o.of == nil || !e.at.Equal(o.at) || e.Router != o.Router {
		return false
	}
	return e.of == o.of || e.of.Name == o.of.Name && e.of.Protocol == o.of.Protocol && sameAttributes(e.of, o.of)
}

// Snapshot is everything that is known as an answer to a query: what is not in
// it is not there.
type Snapshot struct {
	Query Query

	// Endpoints are those that may be called, by address and each once: an address that
	// several services are at is that of the first. Those of weight 0 are left out while
	// there are others.
	Endpoints []Endpoint

	// Err says why the snapshot may be out of date or incomplete; nil while it is
	// current. Whatever it is, the endpoints are the last known.
	Err error

	// Since is when the registry confirmed all of the answer last, for one of the state
	// file, and for one with an endpoint that is known from that or from before an
	// outage, and was not reported since the registry is back. It is zero once every
	// endpoint is reported, or given up after Options.ForgetAfter.
	Since time.Time

	all []Endpoint
}

// All returns every endpoint that is reported, by address and service, with those of
// weight 0 and an address as often as services are at it.
func (s Snapshot) All() []Endpoint { return slices.Clone(s.all) }

// shows reports whether the registry reports the address of an instance. What was known
// before says nothing of what is there.
func (s Snapshot) shows(i Instance) bool {
	return slices.ContainsFunc(s.all, func(e Endpoint) bool { return e.Host == i.Host && e.Port == i.Port && !e.unconfirmed })
}

// callable returns what Snapshot.Endpoints are of all endpoints.
func callable(all []Endpoint) []Endpoint {
	calls := func(e Endpoint) bool { return e.Weight.share() > 0 }
	some := slices.ContainsFunc(all, calls)
	seen := make(map[string]bool, len(all))
	out := make([]Endpoint, 0, len(all))
	for _, e := range all {
		if some && !calls(e) {
			continue
		}
		if address := e.Address(); !seen[address] {
			seen[address] = true
			out = append(out, e)
		}
	}
	return out
}

// same reports whether two snapshots lead calls to the same places and are both
// current, or out of date for the same cause.
func (s Snapshot) same(o Snapshot) bool {
	if (s.Err == nil) != (o.Err == nil) || cause(s.Err) != cause(o.Err) || s.Since.IsZero() != o.Since.IsZero() { //nolint:errorlint // causes are sentinels
		return false
	}
	return slices.EqualFunc(s.all, o.all, Endpoint.same)
}
