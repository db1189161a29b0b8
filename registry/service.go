// Package registry has the model that all registries are translated to and from
// (Service, Entry), and the ports by which they are accessed (Source, Target). It
// does no I/O.
package registry

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
)

// Name identifies a service within its registry: in a mesh the host address
// fqdn:port, in others format, namespace, group and native name.
type Name string

// Service is a named set of endpoints. It is immutable once published: a change is a
// new Service of the same name.
type Service struct {
	Name        Name
	Namespace   string // in its registry; may be empty
	Application string // that provides it; may be empty
	Protocol    string // of the endpoints that name none of their own
	Interfaces  []Interface
	Attributes  Attributes
	Path        Path       // the registries the service passed before this one
	Endpoints   []Endpoint // in the order of Endpoint.Compare
}

// Interface is one RPC contract that a service provides, as in a service key.
type Interface struct {
	Name, Version, Group string
}

// Endpoint is one address of a service. If its health is not Offered, no target has it.
type Endpoint struct {
	Host       string // an IP address without brackets, or a host name
	Port       uint16
	Health     Health
	ZeroWeight bool   // Weight was reported as 0: no calls while others have some
	Weight     uint32 // 0: not reported
	PortName   string
	Protocol   string // empty: the service's
	Zone       string // region/zone/subzone, as far as reported
	Instance   string // the same for all ports of one process; may be empty
	URLPath    string // of the interface, without a leading slash; empty: its name
	Attributes Attributes
	Path       Path // empty: the service's
}

// Address returns host and port, an IPv6 host in brackets.
func (e Endpoint) Address() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Compare orders endpoints by host, port, port name, protocol and instance.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Host, o.Host), cmp.Compare(e.Port, o.Port), cmp.Compare(e.PortName, o.PortName),
		cmp.Compare(e.Protocol, o.Protocol), cmp.Compare(e.Instance, o.Instance))
}

// Attributes are free labels. A published map is immutable, so that several endpoints
// can share one.
type Attributes map[string]string

// Path is the registries that an entry passed, oldest first, in hops of HopLen
// characters each. It ends loops: nothing is written to a registry in its path.
type Path string

// HopLen is the length of one hop of a Path in bytes.
const HopLen = 4

// Has reports whether a registry is in the path.
func (p Path) Has(hop string) bool {
	for ; len(p) >= HopLen; p = p[HopLen:] {
		if string(p[:HopLen]) == hop {
			return true
		}
	}
	return false
}

// Hops returns the number of registries in the path.
func (p Path) Hops() int { return len(p) / HopLen }

// Health is the state of an endpoint in its registry.
type Health uint8

// The health values. HealthUnknown is not reported, as istiod does for endpoints that
// it offers.
const (
	HealthUnknown Health = iota
	Healthy
	Degraded
	Unhealthy
	Draining
	Disabled
)

// Offered reports whether consumers may call such an endpoint.
func (h Health) Offered() bool { return h <= Degraded }

// String returns the value as status, logs and documents have it.
func (h Health) String() string {
	names := [...]string{"unknown", "healthy", "degraded", "unhealthy", "draining", "disabled"}
	if int(h) < len(names) {
		return names[h]
	}
	return "invalid"
}

// KeepEmpty returns services, and those of before that are missing, without endpoints:
// if their group still exists, a service without endpoints is known to have none. It
// keeps the common path of its endpoints, so that it does not return to where it came
// from, and their common protocol, on which its name in a mesh depends.
func KeepEmpty(services, before []*Service) []*Service {
	present := make(map[Name]bool, len(services))
	for _, s := range services {
		present[s.Name] = true
	}
	for _, s := range before {
		if !present[s.Name] {
			empty := *s
			empty.Path, empty.Protocol, empty.Endpoints = s.commonPath(), s.commonProtocol(), nil
			services = append(services, &empty)
		}
	}
	return services
}

// commonPath returns the path of all endpoints of a service; empty if they differ.
func (s *Service) commonPath() Path {
	if len(s.Endpoints) == 0 {
		return s.Path
	}
	first := cmp.Or(s.Endpoints[0].Path, s.Path)
	for _, e := range s.Endpoints {
		if cmp.Or(e.Path, s.Path) != first {
			return ""
		}
	}
	return first
}

// commonProtocol returns the protocol of all endpoints of a service; the service's own
// if they differ.
func (s *Service) commonProtocol() string {
	if len(s.Endpoints) == 0 {
		return s.Protocol
	}
	first := cmp.Or(s.Endpoints[0].Protocol, s.Protocol)
	for _, e := range s.Endpoints {
		if cmp.Or(e.Protocol, s.Protocol) != first {
			return s.Protocol
		}
	}
	return first
}

// Equal reports whether all fields of two services are equal.
func (s *Service) Equal(o *Service) bool {
	return s == o || s != nil && o != nil &&
		s.Name == o.Name && s.Namespace == o.Namespace && s.Application == o.Application &&
		s.Protocol == o.Protocol && s.Path == o.Path &&
		maps.Equal(s.Attributes, o.Attributes) &&
		slices.Equal(s.Interfaces, o.Interfaces) &&
		slices.EqualFunc(s.Endpoints, o.Endpoints, Endpoint.Equal)
}

// Equal reports whether all fields of two endpoints are equal.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Host == o.Host && e.Port == o.Port && e.PortName == o.PortName &&
		e.Protocol == o.Protocol && e.Health == o.Health && e.Weight == o.Weight && e.ZeroWeight == o.ZeroWeight &&
		e.Zone == o.Zone && e.Instance == o.Instance && e.Path == o.Path && e.URLPath == o.URLPath &&
		maps.Equal(e.Attributes, o.Attributes)
}
