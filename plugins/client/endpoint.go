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

// Attributes of the mesh. They repeat those of package registry/mesh, which would bring its SDKs.
const (
	attributeHost   = "meshHostAddr"
	attributeSubset = "meshSubset"
)

// Interface is one RPC contract.
type Interface struct{ Name, Version, Group string }

// A Router returns the subset of its service that a call must go to; empty: any endpoint.
// The function random returns a number below n.
type Router interface {
	Subset(path string, header func(name string) (string, bool), random func(n uint64) uint64) string
}

// Endpoint is an address that a call may go to. It is a value: changing one does not affect
// others.
type Endpoint struct {
	Host        string // an IP address without brackets
	Port        uint16
	Protocol    string // the RPC protocol; empty: not reported
	Application string // the provider's application; may be empty
	Service     string // the service's name in the registry: in the mesh its host and port
	Zone        string // region/zone/subzone, as far as reported
	Weight      Weight

	// Router divides the calls of the service among its subsets, as the mesh configures; nil
	// outside a mesh and if any endpoint may be called. Subsets are those of this endpoint.
	Router  Router
	Subsets []string

	service     *registry.Service
	reported    registry.Endpoint
	unconfirmed bool // known from before an outage, and not reported since
}

func endpointOf(s *registry.Service, e registry.Endpoint) Endpoint {
	out := Endpoint{
		Host: e.Host, Port: e.Port, Protocol: e.Protocol, Application: s.Application, Service: string(s.Name), Zone: e.Zone,
		service: s, reported: e,
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

// Interfaces returns the contracts of the endpoint's service.
func (e Endpoint) Interfaces() []Interface {
	if e.service == nil {
		return nil
	}
	all := make([]Interface, 0, len(e.service.Interfaces))
	for _, i := range e.service.Interfaces {
		all = append(all, Interface(i))
	}
	return all
}

// Attribute returns the value of a name at the endpoint, or otherwise at its service.
func (e Endpoint) Attribute(name string) string {
	if v, ok := e.reported.Attributes[name]; ok || e.service == nil {
		return v
	}
	return e.service.Attributes[name]
}

// Attributes returns what Attribute returns for every name. The caller owns the map.
func (e Endpoint) Attributes() map[string]string {
	all := make(map[string]string, len(e.reported.Attributes))
	if e.service != nil {
		maps.Copy(all, e.service.Attributes)
	}
	maps.Copy(all, e.reported.Attributes)
	return all
}

// Subset returns the subset of its service that the routes of the mesh send a call to;
// empty: any endpoint. The path is an HTTP path, such as "/api.Greeter/Hello".
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

// same reports whether calls to two endpoints reach the same place in the same way.
func (e Endpoint) same(o Endpoint) bool {
	if e.service == nil || o.service == nil || !e.reported.Equal(o.reported) || e.Router != o.Router {
		return false
	}
	if e.service == o.service {
		return true
	}
	return e.service.Name == o.service.Name && e.service.Protocol == o.service.Protocol &&
		maps.Equal(e.service.Attributes, o.service.Attributes)
}
