package client

import (
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Attributes of the mesh, as package registry/mesh has them, which brings its SDKs.
const (
	attributeHost   = "meshHostAddr"
	attributeSubset = "meshSubset"
)

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
