package registry

import (
	"slices"
	"strings"
)

// A Place is the part of a registry that holds the services of one format. It has the
// names that begin with its format, namespace and group. The zero Place has all names.
type Place struct {
	prefix string
	names  func(rest string) bool
}

// NewPlace returns the place of all groups with the format, namespace and group of a
// given one. The function names reports whether the name of a service in the place may
// continue with a text after these; nil accepts every text.
func NewPlace(of Group, names func(rest string) bool) Place {
	of.Name = ""
	return Place{of.String(), names}
}

// Has reports whether the service of a name is in the place.
func (p Place) Has(name Name) bool {
	rest, ok := strings.CutPrefix(string(name), p.prefix)
	return ok && (p.names == nil || p.names(rest))
}

// Scope returns the scope of all services of the place, as Table.Unknown takes it.
func (p Place) Scope() string { return p.prefix + "*" }

// meets reports whether a scope can cover a service of the place.
func (p Place) meets(scope string) bool {
	begin, several := strings.CutSuffix(scope, "*")
	return several && strings.HasPrefix(p.prefix, begin) || p.Has(Name(begin))
}

// A Part is the places of a table that one reader sees; without places it is the whole
// table.
type Part []Place

// Has reports whether the service of a name is in the part.
func (p Part) Has(name Name) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(at Place) bool { return at.Has(name) })
}

func (p Part) meets(scope string) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(at Place) bool { return at.meets(scope) })
}
