package dataplane

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Rules divide the calls to a host among its endpoints. They are immutable. With the zero
// value a call may go to any endpoint.
type Rules struct {
	subsets map[string][]*networking.Subset // by host
	near    map[string]bool                 // hosts whose near endpoints are preferred
	routes  map[string][]routeRule          // by host
	hosts   []RuleHost
}

// A routeRule is a route of a VirtualService.
type routeRule struct {
	name    string
	matches []requestMatch // one of them has to match
	to      []*networking.HTTPRouteDestination
}

// A RuleHost is a host that a rule names.
type RuleHost struct {
	Document int    // index of the document
	Path     string // of the field that names the host
	Host     string
}

// Hosts returns all hosts that the rules name, in the order of the documents.
func (r Rules) Hosts() []RuleHost { return r.hosts }

// A RefusedRule is a reason why a document is ignored.
type RefusedRule struct {
	Document int    // index of the document
	Path     string // of the field, such as spec.http[0].route[1]; empty for the document itself
	Object   string // such as VirtualService of a.example
	Reason   string
}

// Error returns the object, the field and the reason.
func (r RefusedRule) Error() string {
	text := r.Reason
	if r.Path != "" {
		text = r.Path + ": " + text
	}
	return cmp.Or(r.Object, "document") + " is ignored: " + text
}

// ParseRules parses Istio's DestinationRules and VirtualServices, each a JSON document in the
// form of Kubernetes. Of a DestinationRule it supports the subsets and the preference for
// near endpoints. Of a VirtualService it supports HTTP routes by path, method and headers to
// weighted destinations. A document with any other field, or with values that data planes reject, is
// ignored as a whole, and returned with the reasons.
func ParseRules(documents [][]byte) (Rules, []RefusedRule) {
	p := rulesParser{
		rules: Rules{
			subsets: make(map[string][]*networking.Subset), near: make(map[string]bool), routes: make(map[string][]routeRule),
		},
		hosts:        make(map[int][]RuleHost),
		refusedHosts: make(map[string]string),
	}
	var services []*ruleDocument
	for i, text := range documents {
		switch d := p.decode(i, text); spec := d.spec.(type) {
		case *networking.DestinationRule:
			p.addDestination(d, spec)
		case *networking.VirtualService:
			services = append(services, d)
		}
	}
	for _, d := range services { // last, because they refer to subsets
		p.addService(d, d.spec.(*networking.VirtualService)) //nolint:forcetypeassert // by the switch above
	}
	slices.SortStableFunc(p.refused, func(a, b RefusedRule) int { return cmp.Compare(a.Document, b.Document) })
	for _, i := range slices.Sorted(maps.Keys(p.hosts)) {
		p.rules.hosts = append(p.rules.hosts, p.hosts[i]...)
	}
	return p.rules, p.refused
}

// rulesParser collects the rules and the ignored documents.
type rulesParser struct {
	rules        Rules
	hosts        map[int][]RuleHost // by document
	refusedHosts map[string]string  // hosts of ignored DestinationRules, with their object
	refused      []RefusedRule
}

// A ruleDocument is one rule while it is checked.
type ruleDocument struct {
	index  int
	object string
	spec   proto.Message // nil if the document is ignored
	ruleChecks
}

// refuse records the failures of a document, and reports whether there are any.
func (p *rulesParser) refuse(d *ruleDocument) bool {
	for _, f := range d.failures {
		p.refused = append(p.refused, RefusedRule{Document: d.index, Path: f.path, Object: d.object, Reason: f.reason})
	}
	return len(d.failures) > 0
}

func (p *rulesParser) decode(at int, text []byte) *ruleDocument {
	d := &ruleDocument{index: at}
	var object struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Metadata   json.RawMessage `json:"metadata"`
		Spec       json.RawMessage `json:"spec"`
		Status     json.RawMessage `json:"status"`
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&object); err != nil {
		d.fail("", strings.TrimPrefix(err.Error(), "json: "))
		p.refuse(d)
		return d
	}
	var spec proto.Message
	switch object.Kind {
	case "DestinationRule":
		spec = new(networking.DestinationRule)
	case "VirtualService":
		spec = new(networking.VirtualService)
	default:
		d.fail("kind", naming.Quote(object.Kind)+": expected DestinationRule or VirtualService")
		p.refuse(d)
		return d
	}
	d.object = object.Kind
	if !slices.Contains(apiVersions(), object.APIVersion) {
		d.fail("apiVersion", naming.Quote(object.APIVersion)+": expected networking.istio.io/v1")
	}
	if len(object.Spec) == 0 {
		d.fail("", "spec is missing")
	} else if err := protojson.Unmarshal(object.Spec, spec); err != nil {
		d.fail("spec", withoutPosition(err))
	}
	if !p.refuse(d) {
		d.spec = spec
	}
	return d
}

// apiVersions returns the versions of Istio's rules, which all have the same fields. The
// version may be left out.
func apiVersions() []string {
	return []string{"", "networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"}
}

// withoutPosition returns the text of a protojson error without the position, which is that
// in the JSON document and not that in the file.
func withoutPosition(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "): "); ok && strings.HasPrefix(text, "proto:") {
		return after
	}
	return text
}

func (p *rulesParser) addDestination(d *ruleDocument, spec *networking.DestinationRule) {
	d.object = "DestinationRule of " + naming.Quote(spec.GetHost())
	d.checkDestinationRule(spec, p.rules.subsets[spec.GetHost()])
	if p.refuse(d) {
		p.refusedHosts[spec.GetHost()] = d.object
		return
	}
	host := spec.GetHost()
	p.hosts[d.index] = append(p.hosts[d.index], RuleHost{d.index, "spec.host", host})
	p.rules.near[host] = p.rules.near[host] || spec.GetTrafficPolicy() != nil
	p.rules.subsets[host] = append(p.rules.subsets[host], spec.GetSubsets()...)
}

func (p *rulesParser) addService(d *ruleDocument, spec *networking.VirtualService) {
	d.object = "VirtualService of " + naming.Quote(strings.Join(spec.GetHosts(), ", "))
	rules := d.parseVirtualService(spec, p.subsetReason)
	if p.refuse(d) {
		return
	}
	for i, host := range spec.GetHosts() {
		p.hosts[d.index] = append(p.hosts[d.index], RuleHost{d.index, fmt.Sprintf("spec.hosts[%d]", i), host})
		p.rules.routes[host] = append(p.rules.routes[host], rules...)
	}
	for i, h := range spec.GetHttp() {
		for j, to := range h.GetRoute() {
			if host := to.GetDestination().GetHost(); !slices.Contains(spec.GetHosts(), host) {
				path := fmt.Sprintf("spec.http[%d].route[%d].destination.host", i, j)
				p.hosts[d.index] = append(p.hosts[d.index], RuleHost{d.index, path, host})
			}
		}
	}
}

// subsetReason returns the reason why a host has no subset of a name, or "" if it has one.
func (p *rulesParser) subsetReason(host, subset string) string {
	hasName := func(s *networking.Subset) bool { return s.GetName() == subset }
	switch {
	case subset == "" || slices.ContainsFunc(p.rules.subsets[host], hasName):
		return ""
	case p.refusedHosts[host] != "":
		return fmt.Sprintf("subset %s of %s is unknown: %s is ignored",
			naming.Quote(subset), naming.Quote(host), p.refusedHosts[host])
	}
	return fmt.Sprintf("no DestinationRule in this file has subset %s of %s", naming.Quote(subset), naming.Quote(host))
}

// preferNear returns the only supported traffic policy.
func preferNear() *networking.TrafficPolicy {
	return &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{
		LocalityLbSetting: &networking.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(true)},
	}}
}

// A clientKind is a kind of data plane.
type clientKind uint8

const (
	envoyClient clientKind = iota
	grpcClient             // its calls are always POST, and its header conditions cannot match the method
)

// routesTo returns the routes to a host at a port for a kind of data plane, in the order in
// which they are tried.
func (r Rules) routesTo(host string, port uint32, by clientKind) []*routev3.Route {
	var out []*routev3.Route
	for _, rule := range r.routes[host] {
		for _, m := range rule.matches {
			if condition := m.conditionFor(by); condition != nil {
				action := &routev3.Route_Route{Route: weightedAction(rule.to, port)}
				out = append(out, &routev3.Route{Name: rule.name, Match: condition, Action: action})
			}
		}
	}
	return out
}

// weightedAction returns an action that divides calls among destinations by their weights.
func weightedAction(destinations []*networking.HTTPRouteDestination, port uint32) *routev3.RouteAction {
	a := newRouteAction()
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
		weight := uint32(d.GetWeight()) //nolint:gosec // checkDestinations ensures that it is not negative
		all.Clusters = append(all.Clusters, &routev3.WeightedCluster_ClusterWeight{
			Name: name(d), Weight: wrapperspb.UInt32(weight),
		})
	}
	a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: all}
	return a
}
