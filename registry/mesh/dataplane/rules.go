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

// Rules divide the calls to a host among its endpoints. By the zero value every call
// may go to any endpoint.
type Rules struct {
	subsets map[string][]*networking.Subset
	near    map[string]bool // hosts whose near endpoints are preferred
	routes  map[string][]routeRule
	hosts   []RuleHost
}

// A routeRule is a route of a VirtualService.
type routeRule struct {
	name    string
	matches []requestMatch // any of them
	to      []*networking.HTTPRouteDestination
}

// A RuleHost is a host that a rule names.
type RuleHost struct {
	Document int // from 0
	Path     string
	Host     string
}

// Hosts returns the hosts that rules name, in the order of the documents.
func (r Rules) Hosts() []RuleHost { return r.hosts }

// A RefusedRule is a document that is not followed, or one reason why it is not.
type RefusedRule struct {
	Document int    // from 0
	Path     string // of the field, as in spec.http[0].route[1]; empty: the document
	Object   string // such as VirtualService of a.example
	Reason   string
}

// Error returns the object, the field and the reason.
func (r RefusedRule) Error() string {
	text := r.Reason
	if r.Path != "" {
		text = r.Path + ": " + text
	}
	return cmp.Or(r.Object, "document") + " is not followed: " + text
}

// ParseRules reads Istio's own rules: DestinationRules and VirtualServices of Kubernetes,
// each a JSON document. Of a DestinationRule it follows subsets and whether near endpoints
// are preferred; of a VirtualService the routes of HTTP by path, method and headers to
// weighted destinations. A document with anything else, or with what data planes refuse,
// is refused whole, and the others are followed.
func ParseRules(documents [][]byte) (Rules, []RefusedRule) {
	p := rulesParser{
		rules:        Rules{subsets: make(map[string][]*networking.Subset), near: make(map[string]bool), routes: make(map[string][]routeRule)},
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
	for _, d := range services { // which refer to subsets
		p.addService(d, d.spec.(*networking.VirtualService)) //nolint:forcetypeassert // by the switch above
	}
	slices.SortStableFunc(p.refused, func(a, b RefusedRule) int { return cmp.Compare(a.Document, b.Document) })
	for _, i := range slices.Sorted(maps.Keys(p.hosts)) {
		p.rules.hosts = append(p.rules.hosts, p.hosts[i]...)
	}
	return p.rules, p.refused
}

// rulesParser gathers rules, and what is refused.
type rulesParser struct {
	rules        Rules
	hosts        map[int][]RuleHost // by document
	refusedHosts map[string]string  // hosts of DestinationRules that are refused, and which
	refused      []RefusedRule
}

// A ruleDocument is one rule while it is checked.
type ruleDocument struct {
	index  int
	object string
	spec   proto.Message // nil: it is none, or is refused
	ruleChecks
}

// refuse records why a document is refused, and reports whether it is.
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
		d.fail("kind", naming.Quote(object.Kind)+": want DestinationRule or VirtualService")
		p.refuse(d)
		return d
	}
	d.object = object.Kind
	if !slices.Contains(apiVersions(), object.APIVersion) {
		d.fail("apiVersion", naming.Quote(object.APIVersion)+": want networking.istio.io/v1")
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

// apiVersions are those of Istio's rules, all with the same fields. Without one there is
// no doubt which is meant.
func apiVersions() []string {
	return []string{"", "networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"}
}

// withoutPosition returns the text of an error of protojson without the position, which
// is that in JSON and not that in a file.
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
				p.hosts[d.index] = append(p.hosts[d.index], RuleHost{d.index, fmt.Sprintf("spec.http[%d].route[%d].destination.host", i, j), host})
			}
		}
	}
}

// subsetReason returns why a host has no such subset; empty: it has.
func (p *rulesParser) subsetReason(host, subset string) string {
	switch {
	case subset == "" || slices.ContainsFunc(p.rules.subsets[host], func(s *networking.Subset) bool { return s.GetName() == subset }):
		return ""
	case p.refusedHosts[host] != "":
		return fmt.Sprintf("subset %s of %s is not known: %s is not followed", naming.Quote(subset), naming.Quote(host), p.refusedHosts[host])
	}
	return fmt.Sprintf("no DestinationRule of this file has subset %s of %s", naming.Quote(subset), naming.Quote(host))
}

// preferNear returns the one policy that is followed.
func preferNear() *networking.TrafficPolicy {
	return &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{
		LocalityLbSetting: &networking.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(true)},
	}}
}

// A clientKind is a kind of data plane.
type clientKind uint8

const (
	envoyClient clientKind = iota
	grpcClient             // calls are always POST, which is not among what headers match
)

// routesTo returns the routes to a host at a port, in the order in which they are
// tried.
func (r Rules) routesTo(host string, port uint32, by clientKind) []*routev3.Route {
	var out []*routev3.Route
	for _, rule := range r.routes[host] {
		for _, m := range rule.matches {
			if condition := m.conditionFor(by); condition != nil {
				out = append(out, &routev3.Route{Name: rule.name, Match: condition, Action: &routev3.Route_Route{Route: weightedAction(rule.to, port)}})
			}
		}
	}
	return out
}

// weightedAction returns a route action to destinations by their weights.
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
		weight := uint32(d.GetWeight()) //nolint:gosec // not less than 0, by checks
		all.Clusters = append(all.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: name(d), Weight: wrapperspb.UInt32(weight)})
	}
	a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: all}
	return a
}
