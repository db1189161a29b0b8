// Package registry holds the one model every registry is translated to and
// from, and the two ports, Source and Target, that registries are reached by.
// It does no I/O of its own.
package registry

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
)

// Name identifies a service within the registry that reported it: for the mesh
// the host address `fqdn:port`, for the others format, namespace, group and
// native name.
type Name string

// Service is one named set of endpoints. It is never changed once published:
// a change is a new Service of the same name.
type Service struct {
	Name        Name
	Namespace   string // of the registry that reported it; may be empty
	Application string // which application provides it, where that is known
	Protocol    string // of the endpoints that name none of their own
	Interfaces  []Interface
	Attributes  Attributes
	Path        Path       // the registries the service passed before this one
	Endpoints   []Endpoint // in the order of Endpoint.Compare
}

// Interface is one RPC contract that a service provides, as a service key
// names it.
type Interface struct {
	Name, Version, Group string
}

// Endpoint is one address that serves a service. An endpoint whose health
// does not allow Offered is known, and is not written to any target.
type Endpoint struct {
	Host       string // an IP address without brackets, or a host name
	Port       uint16
	Health     Health
	ZeroWeight bool   // Weight was reported as 0: no calls while others have some
	Weight     uint32 // 0: not reported
	PortName   string
	Protocol   string // empty: the service's
	Zone       string // region/zone/subzone, as far as reported
	Instance   string // ties the ports of one process together; may be empty
	URLPath    string // at which the interface is called, without a slash before it; empty: at its name
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

// Attributes are free labels. A published map is never written again, so
// services share one where they can.
type Attributes map[string]string

// Path names the registries that an entry passed, oldest first, in hops of
// HopLen characters each. It is what ends loops: nothing is written to a
// registry whose hop is already in the path.
type Path string

// HopLen is the length of one hop of a Path in bytes.
const HopLen = 4

// Has reports whether the path already went through a registry.
func (p Path) Has(hop string) bool {
	for ; len(p) >= HopLen; p = p[HopLen:] {
		if string(p[:HopLen]) == hop {
			return true
		}
	}
	return false
}

// Hops returns how many registries the path went through.
func (p Path) Hops() int { return len(p) / HopLen }

// Health is what a registry says of an endpoint.
type Health uint8

// The health values. The zero value means that the registry does not say,
// which istiod does for every endpoint it offers.
const (
	HealthUnknown Health = iota
	Healthy
	Degraded
	Unhealthy
	Draining
	Disabled
)

// Offered reports whether consumers may be sent to such an endpoint.
func (h Health) Offered() bool { return h <= Degraded }

// String returns the word that status, logs and documents use.
func (h Health) String() string {
	names := [...]string{"unknown", "healthy", "degraded", "unhealthy", "draining", "disabled"}
	if int(h) < len(names) {
		return names[h]
	}
	return "invalid"
}

// KeepEmpty returns services and, without endpoints, those of before that are
// not among them: whoever reads a group that is still there knows that a service
// which lost its last endpoint has none. It keeps the path that all of them
// came, so that it does not go back there without them, and the protocol that
// all of them spoke, by which it stays where it was.
func KeepEmpty(services, before []*Service) []*Service {
	there := make(map[Name]bool, len(services))
	for _, s := range services {
		there[s.Name] = true
	}
	for _, s := range before {
		if !there[s.Name] {
			empty := *s
			empty.Path, empty.Protocol, empty.Endpoints = s.commonPath(), s.spoken(), nil
			services = append(services, &empty)
		}
	}
	return services
}

// commonPath returns the path that a service and all its endpoints came, empty where
// they came different ones.
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

// spoken returns the protocol that all endpoints of a service speak; the
// service's own where they speak different ones or there is none.
func (s *Service) spoken() string {
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

// Equal reports whether two services are the same in every respect.
func (s *Service) Equal(o *Service) bool {
	return s == o || s != nil && o != nil &&
		s.Name == o.Name && s.Namespace == o.Namespace && s.Application == o.Application &&
		s.Protocol == o.Protocol && s.Path == o.Path &&
		maps.Equal(s.Attributes, o.Attributes) &&
		slices.Equal(s.Interfaces, o.Interfaces) &&
		slices.EqualFunc(s.Endpoints, o.Endpoints, Endpoint.Equal)
}

// Equal reports whether two endpoints are the same in every respect.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Host == o.Host && e.Port == o.Port && e.PortName == o.PortName &&
		e.Protocol == o.Protocol && e.Health == o.Health && e.Weight == o.Weight && e.ZeroWeight == o.ZeroWeight &&
		e.Zone == o.Zone && e.Instance == o.Instance && e.Path == o.Path && e.URLPath == o.URLPath &&
		maps.Equal(e.Attributes, o.Attributes)
}
