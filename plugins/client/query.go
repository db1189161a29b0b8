package client

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Query is what a consumer looks for. Queries are comparable.
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

// ByInterface finds the providers of one interface, by its service key.
func ByInterface(name, version, group string) Query {
	return ofInterface(registry.Interface{Name: name, Version: version, Group: group})
}

func ofInterface(i registry.Interface) Query { return ofKey(metadata.KeyOf(i)) }

func ofKey(k naming.ServiceKey) Query { return Query{byKey, k.String()} }

// ByApplication finds the instances of an application, whichever interfaces they provide.
func ByApplication(name string) Query { return Query{byApplication, name} }

// ByHost finds the endpoints of a host of the mesh, such as
// greeter.shop.svc.cluster.local:20000.
func ByHost(address string) Query {
	if a, err := naming.ParseHostAddress(address); err == nil {
		address = a.String()
	}
	return Query{byHost, address}
}

// Named finds what a consumer may call by a plain name: the providers of an interface of that
// name, the instances of an application or, by host:port, a host of the mesh.
func Named(name string) Query {
	all := []Query{ByInterface(name, "", ""), ByApplication(name)}
	if _, err := naming.ParseHostAddress(name); err == nil {
		all = append(all, ByHost(name))
	}
	return AnyOf(all...)
}

// ParseQuery returns the query that a text names: a service key
// (providers:api.Greeter:1.0.0:group), a host address of the mesh
// (greeter.shop.svc.cluster.local:20000), or a plain name as in Named.
func ParseQuery(text string) (Query, error) {
	q := Named(text)
	switch {
	case strings.HasPrefix(text, naming.Providers+":"):
		q = Query{byKey, text}
	case strings.Contains(text, ":"):
		q = ByHost(text)
	}
	return q, q.invalid()
}

// invalid returns why no registry can hold an answer, or nil.
func (q Query) invalid() error {
	var err error
	switch {
	case q.text == "":
		return errEmptyQuery
	case q.by == byKey:
		_, err = naming.ParseServiceKey(q.text)
	case q.by == byHost:
		_, err = naming.ParseHostAddress(q.text)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

var errEmptyQuery = fmt.Errorf("%w: the query is empty", ErrInvalid)

// AnyOf finds everything that answers at least one of several queries.
func AnyOf(several ...Query) Query {
	var parts []string
	for _, q := range several {
		for _, one := range q.alternatives() {
			parts = append(parts, string(rune('0'+one.by))+one.text)
		}
	}
	return Query{byAny, strings.Join(parts, "\n")}
}

// alternatives returns the queries of AnyOf, or the query itself.
func (q Query) alternatives() []Query {
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
		for _, one := range q.alternatives() {
			parts = append(parts, one.String())
		}
		return strings.Join(parts, " or ")
	}
	return map[by]string{byKey: "service key ", byApplication: "application ", byHost: "host "}[q.by] + q.text
}

// queries returns every query that a service answers; none for nil.
func queries(s *registry.Service) []Query {
	if s == nil {
		return nil
	}
	var all []Query
	for _, i := range s.Interfaces {
		all = append(all, ofInterface(i))
		if i.Version == "" && i.Group == "" { // an application that has no interfaces
			all = append(all, ByApplication(i.Name))
		}
	}
	if s.Application != "" {
		all = append(all, ByApplication(s.Application))
		if len(s.Interfaces) == 0 { // the service has only a plain name
			all = append(all, ByInterface(s.Application, "", ""))
		}
	}
	if a, err := naming.ParseHostAddress(string(s.Name)); err == nil {
		all = append(all, ByHost(a.String()))
	}
	slices.SortFunc(all, compareQueries)
	return slices.Compact(all)
}

func compareQueries(a, b Query) int {
	return cmp.Or(cmp.Compare(a.by, b.by), cmp.Compare(a.text, b.text))
}
