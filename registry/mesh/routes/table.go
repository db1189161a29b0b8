package routes

import (
	"regexp"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Table is how calls to one host address are divided. It is not changed once
// reported. The first route that matches decides; a call that none matches is
// refused by a proxy.
type Table struct {
	Host   naming.HostAddress
	Routes []Route

	// Left says which routes could not be expressed, and why. They match
	// nothing, so that the calls they are for fall to the routes behind them.
	Left []string
}

// Route is a match and where it leads.
type Route struct {
	Name     string
	Match    Match
	Clusters []Share // at least one
}

// Share is a cluster with its part of the calls: Weight of the sum of all.
type Share struct {
	Cluster naming.Cluster
	Weight  uint32
}

// Match is a condition on a call. All of its parts have to hold; the zero value
// matches everything.
type Match struct {
	Path    Text // of the request, `/package.Service/Method` for gRPC
	Headers []Header
}

// Header is a condition on one header, whose name is in lower case.
type Header struct {
	Name    string
	Present bool // it only has to be there; Text is not used
	Text    Text
	Not     bool // the condition must not hold
}

// Text is a condition on a text. Exactly one of the first four is used, in
// their order; the zero value matches everything.
type Text struct {
	Exact, Prefix, Suffix, Contains string
	Regexp                          *regexp.Regexp // matches the whole
	Fold                            bool           // letters of both cases are the same
}

// Matches reports whether the text fulfils the condition.
func (t Text) Matches(s string) bool {
	if t.Regexp != nil {
		return t.Regexp.MatchString(s)
	}
	exact, prefix, suffix, contains := t.Exact, t.Prefix, t.Suffix, t.Contains
	if t.Fold {
		s, exact, prefix = strings.ToLower(s), strings.ToLower(exact), strings.ToLower(prefix)
		suffix, contains = strings.ToLower(suffix), strings.ToLower(contains)
	}
	switch {
	case exact != "":
		return s == exact
	case prefix != "":
		return strings.HasPrefix(s, prefix)
	case suffix != "":
		return strings.HasSuffix(s, suffix)
	}
	return strings.Contains(s, contains)
}

// Matches reports whether a call fulfils the condition. header returns the
// values of a header by its name in lower case, joined with commas, and whether
// it is there.
func (m Match) Matches(path string, header func(name string) (string, bool)) bool {
	if !m.Path.Matches(path) {
		return false
	}
	for _, h := range m.Headers {
		value, there := header(h.Name)
		holds := there && (h.Present || h.Text.Matches(value))
		if holds == h.Not {
			return false
		}
	}
	return true
}

// Find returns the first route that a call fulfils, nil where none does.
func (t *Table) Find(path string, header func(name string) (string, bool)) *Route {
	for i := range t.Routes {
		if t.Routes[i].Match.Matches(path, header) {
			return &t.Routes[i]
		}
	}
	return nil
}

// Subset returns the subset that a call goes to; empty where any endpoint may be
// called. Below returns a number below another, such as a random one, by which one of
// several is chosen. Without routes, the table may be nil.
func (t *Table) Subset(path string, header func(name string) (string, bool), below func(uint64) uint64) string {
	if t == nil {
		return ""
	}
	route := t.Find(path, header)
	if route == nil {
		return ""
	}
	return route.Pick(below(route.Total())).Subset
}

// Pick returns the cluster of a call; at is a number below Total, such as a
// random one. Clusters of weight 0 get no calls.
func (r *Route) Pick(at uint64) naming.Cluster {
	for _, s := range r.Clusters {
		if at < uint64(s.Weight) {
			return s.Cluster
		}
		at -= uint64(s.Weight)
	}
	return r.Clusters[len(r.Clusters)-1].Cluster
}

// Total returns the sum of the weights of a route, at least 1.
func (r *Route) Total() uint64 {
	var sum uint64
	for _, s := range r.Clusters {
		sum += uint64(s.Weight)
	}
	return max(sum, 1)
}
