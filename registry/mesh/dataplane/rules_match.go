package dataplane

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// A requestMatch is a condition on requests.
type requestMatch struct {
	condition *routev3.RouteMatch
	method    *networking.StringMatch // nil: any
}

// conditionFor returns the condition for a kind of data plane, or nil if none of its requests
// can fulfil it.
func (m requestMatch) conditionFor(by clientKind) *routev3.RouteMatch {
	switch {
	case m.method == nil || by == grpcClient && matchesText(m.method, "POST"):
		return m.condition
	case by == grpcClient:
		return nil
	}
	out := proto.CloneOf(m.condition)
	out.Headers = append(out.Headers, headerCondition(":method", m.method))
	return out
}

// matchesText reports whether a text fulfils a condition that checkText accepted.
func matchesText(m *networking.StringMatch, text string) bool {
	switch s := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return text == s.Exact
	case *networking.StringMatch_Prefix:
		return strings.HasPrefix(text, s.Prefix)
	case *networking.StringMatch_Regex:
		return regexp.MustCompile("^(?:" + s.Regex + ")$").MatchString(text)
	}
	return true
}

// maxWithout bounds the conditions in withoutHeaders, because each doubles the routes.
const maxWithout = 4

// parseMatches checks the conditions of a route, and returns them. One of them has to hold.
func (c *ruleChecks) parseMatches(path string, all []*networking.HTTPMatchRequest) []requestMatch {
	if len(all) == 0 {
		return []requestMatch{{condition: pathCondition(nil)}}
	}
	var out []requestMatch
	for i, m := range all {
		path, before := fmt.Sprintf("%s[%d]", path, i), len(c.failures)
		c.rejectOtherFields(path, m, "name", "uri", "ignore_uri_case", "method", "headers", "without_headers")
		c.checkExpression(path+".uri", m.GetUri())
		c.checkText(path+".method", m.GetMethod())
		for _, name := range slices.Sorted(maps.Keys(m.GetHeaders())) {
			c.failIf(path+".headers", headerReason(name))
			c.checkText(path+".headers", m.GetHeaders()[name])
		}
		valued := 0
		for _, name := range slices.Sorted(maps.Keys(m.GetWithoutHeaders())) {
			c.failIf(path+".withoutHeaders", headerReason(name))
			if without := m.GetWithoutHeaders()[name]; !isPresence(without) {
				c.checkText(path+".withoutHeaders", without)
				valued++
			}
		}
		if valued > maxWithout {
			c.fail(path+".withoutHeaders", fmt.Sprintf("%d headers with a value, at most %d", valued, maxWithout))
		}
		if len(c.failures) == before {
			out = append(out, matchesOf(m)...)
		}
	}
	return out
}

// checkText checks a condition on a text. gRPC rejects an empty prefix.
func (c *ruleChecks) checkText(path string, m *networking.StringMatch) {
	if s, ok := m.GetMatchType().(*networking.StringMatch_Prefix); ok && s.Prefix == "" {
		c.fail(path, "the prefix is empty")
	}
	c.checkExpression(path, m)
}

// checkExpression checks the regular expression of a condition, if it has one.
func (c *ruleChecks) checkExpression(path string, m *networking.StringMatch) {
	if s, ok := m.GetMatchType().(*networking.StringMatch_Regex); ok {
		c.failIf(path, expressionReason(s.Regex))
	}
}

// isPresence reports whether a condition only requires a header to be present. As in Istio,
// the regular expression * means the same.
func isPresence(m *networking.StringMatch) bool {
	return m.GetMatchType() == nil || m.GetRegex() == "*"
}

// matchesOf returns the conditions for a match, one of which has to hold. A header that must
// not have a value gives two: the header is absent, or it has another value. With only the
// second, gRPC and Envoy would require the header to be present.
func matchesOf(m *networking.HTTPMatchRequest) []requestMatch {
	base := pathCondition(m.GetUri())
	if m.GetIgnoreUriCase() {
		base.CaseSensitive = wrapperspb.Bool(false)
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetHeaders())) {
		base.Headers = append(base.Headers, headerCondition(name, m.GetHeaders()[name]))
	}
	all := []*routev3.RouteMatch{base}
	for _, name := range slices.Sorted(maps.Keys(m.GetWithoutHeaders())) {
		without := m.GetWithoutHeaders()[name]
		absent, other := headerCondition(name, nil), headerCondition(name, without)
		absent.InvertMatch, other.InvertMatch = true, true
		var next []*routev3.RouteMatch
		for _, condition := range all {
			if isPresence(without) || !matchesText(without, "") { // to Istio, an absent header is empty
				next = append(next, withHeader(condition, absent))
			}
			if !isPresence(without) {
				next = append(next, withHeader(condition, other))
			}
		}
		all = next
	}
	out := make([]requestMatch, len(all))
	for i, condition := range all {
		out[i] = requestMatch{condition, m.GetMethod()}
	}
	return out
}

// withHeader returns a condition with one more header.
func withHeader(m *routev3.RouteMatch, h *routev3.HeaderMatcher) *routev3.RouteMatch {
	out := proto.CloneOf(m)
	out.Headers = append(out.Headers, h)
	return out
}

// pathCondition returns the condition on a path. If m is nil, every path fulfils it.
func pathCondition(m *networking.StringMatch) *routev3.RouteMatch {
	switch u := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: u.Exact}}
	case *networking.StringMatch_Prefix:
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: u.Prefix}}
	case *networking.StringMatch_Regex:
		expression := &matcherv3.RegexMatcher{Regex: u.Regex}
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: expression}}
	default:
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
	}
}

// headerCondition returns the condition on a header. If m is nil, the header has to be
// present. The name is in lower case, because gRPC compares it so.
func headerCondition(name string, m *networking.StringMatch) *routev3.HeaderMatcher {
	name = strings.ToLower(name)
	text := &matcherv3.StringMatcher{}
	switch s := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		text.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: s.Exact}
	case *networking.StringMatch_Prefix:
		text.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: s.Prefix}
	case *networking.StringMatch_Regex:
		if s.Regex != "*" {
			text.MatchPattern = &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: s.Regex}}
		}
	}
	if text.GetMatchPattern() == nil {
		isPresent := &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
		return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: isPresent}
	}
	hasText := &routev3.HeaderMatcher_StringMatch{StringMatch: text}
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: hasText}
}
