package registry

import (
	"slices"
	"strings"
)

// A Place is where the services of one format lie in their registry. It has the names
// that begin with its format, namespace and group. The zero Place has all names.
type Place struct {
	prefix string
	names  func(rest string) bool
}

// NewPlace returns the place of the groups that have a group's format, namespace and
// group. Names reports whether the name of a service there may continue with a text
// behind them; nil: with any.
func NewPlace(of Group, names func(rest string) bool) Place {
	of.Name = ""
	return Place{of.String(), names}
}

// Has reports whether a service lies there, by its name.
func (p Place) Has(name Name) bool {
	rest, ok := strings.CutPrefix(string(name), p.prefix)
	return ok && (p.names == nil || p.names(rest))
}

// Scope returns the scope of all services that lie there, in the form of Table.Unknown.
func (p Place) Scope() string { return p.prefix + "*" }

// meets reports whether a scope may have a service that lies there.
func (p Place) meets(scope string) bool {
	begin, several := strings.CutSuffix(scope, "*")
	return several && strings.HasPrefix(p.prefix, begin) || p.Has(Name(begin))
}

// A Part is the places of a table that one reader sees; none: all of it.
type Part []Place

// Has reports whether a service is in the part, by its name.
func (p Part) Has(name Name) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(at Place) bool { return at.Has(name) })
}

func (p Part) meets(scope string) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(at Place) bool { return at.meets(scope) })
}
