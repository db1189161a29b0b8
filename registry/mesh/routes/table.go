package routes

import (
	"regexp"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Table has the routes of one host address. It is immutable. The first route that matches a
// call decides. A proxy rejects a call that no route matches.
type Table struct {
	Host   naming.HostAddress
	Routes []Route

	// Left describes the routes that a Table cannot express, with the reason. They are left
	// out, so that later routes may match their calls.
	Left []string
}

// Route is a condition on calls and the clusters to which they go.
type Route struct {
	Name     string
	Match    Match
	Clusters []Share // at least one
}

// Share is a cluster and its part of the calls: its weight divided by the sum of all weights.
type Share struct {
	Cluster naming.Cluster
	Weight  uint32
}

// Match is a condition on a call. All of its parts must hold. The zero value matches every
// call.
type Match struct {
	Path    Text // path of the request; for gRPC `/package.Service/Method`
	Headers []Header
}

// Header is a condition on one header.
type Header struct {
	Name    string // in lower case
	Present bool   // the header only has to be present; Text is not used
	Text    Text
	Not     bool // inverts the condition
}

// Text is a condition on a text. Regexp is used if it is set, or else the first of the four
// texts that is not empty. The zero value matches every text.
type Text struct {
	Exact, Prefix, Suffix, Contains string
	Regexp                          *regexp.Regexp // has to match the whole text
	Fold                            bool           // ignores the case of letters
}

// Matches reports whether a text fulfils the condition.
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

// Matches reports whether a call fulfils the condition. header returns the values of a
// header, joined with commas, and whether the call has it. It is called with a name in lower
// case.
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

// Find returns the first route that matches a call, or nil if none does.
func (t *Table) Find(path string, header func(name string) (string, bool)) *Route {
	for i := range t.Routes {
		if t.Routes[i].Match.Matches(path, header) {
			return &t.Routes[i]
		}
	}
	return nil
}

// Subset returns the subset to which a call goes, or "" if any endpoint may be called. The
// function below chooses between clusters: it returns a number below its argument, such as a
// random one. The table may be nil.
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

// Pick returns the cluster of a call. at is a number below Total, such as a random one. A
// cluster with the weight 0 gets no calls.
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
