package client

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// Query says what a consumer looks for. It is comparable.
type Query struct {
	by   by
	text string
}

type by uint8

const (
	byKey by = iota + 1
	byApplication
	byHost
	byAny
)

// ByKey asks for the providers of one service key.
func ByKey(k naming.ServiceKey) Query { return Query{byKey, k.String()} }

// ByInterface asks for the providers of one interface, by its service key.
func ByInterface(name, version, group string) Query {
	return ByKey(KeyOf(registry.Interface{Name: name, Version: version, Group: group}))
}

// ByApplication asks for the instances of an application, whichever interfaces
// they provide.
func ByApplication(name string) Query { return Query{byApplication, name} }

// ByHost asks for the endpoints of a host address of the mesh.
func ByHost(a naming.HostAddress) Query { return Query{byHost, a.String()} }

// Any asks for everything that answers one of several queries.
func Any(several ...Query) Query {
	var parts []string
	for _, q := range several {
		for _, one := range q.each() {
			parts = append(parts, string(rune('0'+one.by))+one.text)
		}
	}
	return Query{byAny, strings.Join(parts, "\n")}
}

// each returns the queries of which one has to be answered.
func (q Query) each() []Query {
	if q.by != byAny {
		return []Query{q}
	}
	var all []Query
	for part := range strings.SplitSeq(q.text, "\n") {
		if len(part) > 1 {
			all = append(all, Query{by(part[0] - '0'), part[1:]})
		}
	}
	return all
}

// String returns the query as logs and errors show it.
func (q Query) String() string {
	if q.by == byAny {
		var parts []string
		for _, one := range q.each() {
			parts = append(parts, one.String())
		}
		return strings.Join(parts, " or ")
	}
	return map[by]string{byKey: "service key ", byApplication: "application ", byHost: "host "}[q.by] + q.text
}

// queries returns everything that a service is an answer to; nothing for nil.
func queries(s *registry.Service) []Query {
	if s == nil {
		return nil
	}
	var all []Query
	for _, i := range s.Interfaces {
		all = append(all, ByKey(KeyOf(i)))
		if i.Version == "" && i.Group == "" { // an application without interfaces of its own
			all = append(all, ByApplication(i.Name))
		}
	}
	if s.Application != "" {
		all = append(all, ByApplication(s.Application))
		if len(s.Interfaces) == 0 { // it has a plain name alone
			all = append(all, ByInterface(s.Application, "", ""))
		}
	}
	if a, err := naming.ParseHostAddress(string(s.Name)); err == nil {
		all = append(all, ByHost(a))
	}
	slices.SortFunc(all, compareQueries)
	return slices.Compact(all)
}

// Endpoint is an address that a call may go to, with the service that it is of.
type Endpoint struct {
	registry.Endpoint
	Service *registry.Service

	// Routes say how the mesh divides the calls of the service among subsets; nil
	// elsewhere and where any endpoint may be called.
	Routes *routes.Table

	unconfirmed bool // not reported since the registry is back
}

// Scheme returns the RPC protocol that the endpoint speaks, empty where it is
// not reported.
func (e Endpoint) Scheme() string {
	if e.Protocol != "" {
		return e.Protocol
	}
	return e.Service.Protocol
}

// Share returns the part of the calls that the endpoint is to have, in hundredths of
// a normal one, which is that of one whose weight is not reported.
func (e Endpoint) Share() uint32 {
	switch {
	case e.Weight == 0:
		return convert.Normal
	case e.Attribute(mesh.AttributeHost) != "": // in the unit of istio
		return convert.FromMesh(e.Weight)
	}
	return e.Weight
}

// AllAttributes returns what Attribute does for every name, in a map of the caller's
// own.
func (e Endpoint) AllAttributes() map[string]string {
	all := make(map[string]string, len(e.Attributes)+len(e.Service.Attributes))
	maps.Copy(all, e.Service.Attributes)
	maps.Copy(all, e.Attributes)
	return all
}

// Attribute returns what the endpoint, or else its service, says under a name.
func (e Endpoint) Attribute(name string) string {
	if v, ok := e.Attributes[name]; ok {
		return v
	}
	return e.Service.Attributes[name]
}

// Snapshot is everything that is known as an answer to a query: what is not in
// it is not there.
type Snapshot struct {
	Query     Query
	Endpoints []Endpoint // those that may be called, by address and service

	// Err says why the snapshot may be out of date or incomplete; nil while it is
	// current. Whatever it is, the endpoints are the last known.
	Err error

	// Since is when the registry confirmed all of the answer last, for one of the state
	// file, and for one with an endpoint that is known from that or from before an
	// outage, and was not reported since the registry is back. It is zero once every
	// endpoint is reported, or given up after Options.Doubt.
	Since time.Time
}

// Callable returns the endpoints without those that are reported to accept no calls,
// their weight being 0, while there are others.
func (s Snapshot) Callable() []Endpoint {
	if closed := func(e Endpoint) bool { return e.ZeroWeight }; slices.ContainsFunc(s.Endpoints, closed) {
		if open := slices.DeleteFunc(slices.Clone(s.Endpoints), closed); len(open) > 0 {
			return open
		}
	}
	return s.Endpoints
}

// Distinct returns what is Callable with each address once, by its first
// service: one that provides several interfaces is called as often as others.
func (s Snapshot) Distinct() []Endpoint {
	callable := s.Callable()
	seen := make(map[string]bool, len(callable))
	all := make([]Endpoint, 0, len(callable))
	for _, e := range callable {
		if address := e.Address(); !seen[address] {
			seen[address] = true
			all = append(all, e)
		}
	}
	return all
}

// same reports whether two snapshots lead calls to the same places and are both
// current, or out of date for the same cause.
func (s Snapshot) same(o Snapshot) bool {
	if (s.Err == nil) != (o.Err == nil) || cause(s.Err) != cause(o.Err) || s.Since.IsZero() != o.Since.IsZero() { //nolint:errorlint // causes are sentinels
		return false
	}
	return slices.EqualFunc(s.Endpoints, o.Endpoints, func(a, b Endpoint) bool {
		return a.Equal(b.Endpoint) && a.Routes == b.Routes && (a.Service == b.Service ||
			a.Service.Name == b.Service.Name && a.Service.Protocol == b.Service.Protocol && sameAttributes(a.Service, b.Service))
	})
}
