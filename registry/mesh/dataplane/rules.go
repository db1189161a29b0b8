package dataplane

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Rules divide the calls to a host among its endpoints. By the zero value every call
// may go to any endpoint.
type Rules struct {
	subsets map[string][]*networking.Subset
	near    map[string]bool // hosts whose near endpoints are preferred
	routes  map[string][]rule
}

// A rule is a route of a VirtualService.
type rule struct {
	name    string
	matches []*routev3.RouteMatch // any of them
	to      []*networking.HTTPRouteDestination
}

// ParseRules reads Istio's own rules: DestinationRules and VirtualServices of Kubernetes,
// each a JSON document. Of a DestinationRule it follows subsets and whether near endpoints
// are preferred; of a VirtualService the routes of HTTP by path, method and headers to
// weighted destinations. The error names all else.
func ParseRules(documents [][]byte) (Rules, error) {
	r := Rules{subsets: make(map[string][]*networking.Subset), near: make(map[string]bool), routes: make(map[string][]rule)}
	var problems []error
	for i, text := range documents {
		if err := r.parse(text); err != nil {
			problems = append(problems, fmt.Errorf("document %d: %w", i+1, err))
		}
	}
	return r, errors.Join(problems...)
}

func (r Rules) parse(text []byte) error {
	var object struct {
		Kind string          `json:"kind"`
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err //nolint:wrapcheck // ParseRules names the document
	}
	switch object.Kind {
	case "DestinationRule":
		d := new(networking.DestinationRule)
		if err := protojson.Unmarshal(object.Spec, d); err != nil {
			return err //nolint:wrapcheck // ParseRules names the document
		}
		return r.addDestination(d)
	case "VirtualService":
		s := new(networking.VirtualService)
		if err := protojson.Unmarshal(object.Spec, s); err != nil {
			return err //nolint:wrapcheck // ParseRules names the document
		}
		return r.addService(s)
	}
	return fmt.Errorf("kind %s: want DestinationRule or VirtualService", naming.Quote(object.Kind))
}

func (r Rules) addDestination(d *networking.DestinationRule) error {
	var problems []error
	r.near[d.GetHost()] = r.near[d.GetHost()] || d.GetTrafficPolicy() != nil
	if d.GetTrafficPolicy() != nil && !proto.Equal(d.GetTrafficPolicy(), preferNear()) || d.GetWorkloadSelector() != nil {
		problems = append(problems, fmt.Errorf("DestinationRule of %s: only subsets and localityLbSetting: {enabled: true} are known here", naming.Quote(d.GetHost())))
	}
	for _, s := range d.GetSubsets() {
		if s.GetName() == "" || s.GetTrafficPolicy() != nil {
			problems = append(problems, fmt.Errorf("DestinationRule of %s: subset %s: only name and labels are known here", naming.Quote(d.GetHost()), naming.Quote(s.GetName())))
		}
	}
	r.subsets[d.GetHost()] = append(r.subsets[d.GetHost()], d.GetSubsets()...)
	return errors.Join(problems...)
}

func (r Rules) addService(s *networking.VirtualService) error {
	rules, err := rulesOf(s)
	if err != nil {
		return fmt.Errorf("VirtualService of %s: %w", naming.Quote(fmt.Sprint(s.GetHosts())), err)
	}
	for _, host := range s.GetHosts() {
		r.routes[host] = append(r.routes[host], rules...)
	}
	return nil
}

// preferNear returns the one policy that is followed.
func preferNear() *networking.TrafficPolicy {
	return &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{
		LocalityLbSetting: &networking.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(true)},
	}}
}

func rulesOf(s *networking.VirtualService) ([]rule, error) {
	var problems []error
	if len(s.GetTcp())+len(s.GetTls()) > 0 {
		problems = append(problems, errors.New("only routes of HTTP are known here"))
	}
	rules := make([]rule, 0, len(s.GetHttp()))
	for i, h := range s.GetHttp() {
		name := cmp.Or(h.GetName(), fmt.Sprintf("route-%d", i+1))
		matches, err := matchesOf(h)
		if err != nil {
			problems = append(problems, fmt.Errorf("route %s: %w", naming.Quote(name), err))
			continue
		}
		rules = append(rules, rule{name, matches, h.GetRoute()})
	}
	return rules, errors.Join(problems...)
}

func matchesOf(h *networking.HTTPRoute) ([]*routev3.RouteMatch, error) {
	known := &networking.HTTPRoute{Name: h.GetName(), Match: h.GetMatch(), Route: h.GetRoute()}
	if len(h.GetRoute()) == 0 || !proto.Equal(h, known) {
		return nil, errors.New("only weighted destinations are known here")
	}
	if len(h.GetMatch()) == 0 {
		return []*routev3.RouteMatch{pathOf(nil)}, nil
	}
	matches := make([]*routev3.RouteMatch, 0, len(h.GetMatch()))
	for _, m := range h.GetMatch() {
		match, err := matchOf(m)
		if err != nil {
			return nil, err
		}
		matches = append(matches, match)
	}
	return matches, nil
}

func matchOf(m *networking.HTTPMatchRequest) (*routev3.RouteMatch, error) {
	known := &networking.HTTPMatchRequest{
		Name: m.GetName(), Uri: m.GetUri(), IgnoreUriCase: m.GetIgnoreUriCase(), Method: m.GetMethod(), Headers: m.GetHeaders(), WithoutHeaders: m.GetWithoutHeaders(),
	}
	if !proto.Equal(m, known) {
		return nil, errors.New("only conditions on path, method and headers are known here")
	}
	out := pathOf(m.GetUri())
	if m.GetIgnoreUriCase() {
		out.CaseSensitive = wrapperspb.Bool(false)
	}
	if m.GetMethod() != nil {
		out.Headers = append(out.Headers, headerOf(":method", m.GetMethod()))
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetHeaders())) {
		out.Headers = append(out.Headers, headerOf(name, m.GetHeaders()[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetWithoutHeaders())) {
		without := headerOf(name, m.GetWithoutHeaders()[name])
		without.InvertMatch = true
		out.Headers = append(out.Headers, without)
	}
	return out, nil
}

// pathOf returns a condition on the path; nil: every path fulfils it.
func pathOf(m *networking.StringMatch) *routev3.RouteMatch {
	switch u := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: u.Exact}}
	case *networking.StringMatch_Prefix:
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: u.Prefix}}
	case *networking.StringMatch_Regex:
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: u.Regex}}}
	default:
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
	}
}

// headerOf returns a condition on a header; nil: it has to be there.
func headerOf(name string, m *networking.StringMatch) *routev3.HeaderMatcher {
	text := &matcherv3.StringMatcher{}
	switch s := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		text.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: s.Exact}
	case *networking.StringMatch_Prefix:
		text.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: s.Prefix}
	case *networking.StringMatch_Regex:
		text.MatchPattern = &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: s.Regex}}
	default:
		return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}
	}
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: text}}
}

// of returns the routes to a host at a port, in the order in which they are
// tried.
func (r Rules) of(host string, port uint32) []*routev3.Route {
	var out []*routev3.Route
	for _, rule := range r.routes[host] {
		for _, m := range rule.matches {
			out = append(out, &routev3.Route{Name: rule.name, Match: m, Action: &routev3.Route_Route{Route: weighted(rule.to, port)}})
		}
	}
	return out
}

// weighted returns a route action to destinations by their weights.
func weighted(destinations []*networking.HTTPRouteDestination, port uint32) *routev3.RouteAction {
	a := action()
	name := func(d *networking.HTTPRouteDestination) string {
		to := d.GetDestination()
		return clusterName(to.GetHost(), cmp.Or(to.GetPort().GetNumber(), port), to.GetSubset())
	}
	if len(destinations) == 1 {
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: name(destinations[0])}
		return a
	}
	all := &routev3.WeightedCluster{}
	for _, d := range destinations {
		weight := uint32(max(d.GetWeight(), 0)) //nolint:gosec // not less than 0
		all.Clusters = append(all.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: name(d), Weight: wrapperspb.UInt32(weight)})
	}
	a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: all}
	return a
}
