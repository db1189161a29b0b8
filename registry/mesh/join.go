package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Naming decides which hosts of the mesh are services, and under which names, in addition to
// their published service keys.
type Naming struct {
	Rules []Rule           // the first match names a host without a published key
	Plain []naming.Pattern // hosts that are services without a name; `*`: all
	Only  []naming.Pattern // hosts that may be services; none: all

	// Imported hosts come from other registries.
	Imported []naming.Pattern

	// Interest limits the services to the requested ones: by host, host address,
	// application, interface or service key. nil: all.
	Interest *registry.Interest

	// Subsets adds to every endpoint the subsets that it belongs to. The endpoints of all
	// subset clusters are read for it.
	Subsets bool
}

// Rule names the services at the hosts that it matches.
type Rule struct {
	Host naming.Pattern
	Port uint16 // 0: all

	// Interfaces are the interfaces of such a host; none: it is a service without
	// interfaces. A * in a name stands for the part of the host that the * of Host matched.
	Interfaces []registry.Interface
}

// JoinInput is everything that a join depends on. Equal inputs give equal rows, whichever
// order of events led to them.
type JoinInput struct {
	Clusters    map[string]*Cluster    // by name
	Assignments map[string]*Assignment // by EDS name
	Mapping     metadata.Mapping

	// Rejected and Unknown explain why the newest version of a cluster (by name) or of
	// endpoints (by EDS name) is not known. Clusters and Assignments have the last known one.
	Rejected map[string]error
	Unknown  map[string]error
}

// skipReason returns why a cluster is not a service, for status. It is empty for services and
// for the clusters that every proxy has.
func (c *Cluster) skipReason() string {
	if c.Err == nil || errors.Is(c.Err, errNotAService) {
		return ""
	}
	return c.Err.Error()
}

// hostRow is the result of the join for one host.
type hostRow struct {
	service  *registry.Service // nil: none
	skipped  registry.Omission // the left out part, and why
	unknown  error             // why the service is not known, or may be out of date
	edsNames []string          // the EDS names that the row depends on
}

// The reasons why a whole host is left out or unknown.
var (
	errEndpointsPending = errors.New("istiod has not reported its endpoints yet")
	errHeadless         = errors.New("headless: istiod reports its endpoints to nodes of type router only; " +
		"set node.type: router")
	errUnsupportedDiscovery = errors.New("unsupported cluster discovery type")
)

const (
	reasonNoEndpoints = "has no endpoints (such as resolution NONE): callers connect to the address that they call"
	reasonImported    = "it was imported from another registry, and is not exported"
	reasonUnnamed     = "no service key is published for it, and no rule of bridges[].names gives it one"
	reasonExcluded    = "select does not include it"
	reasonNoCluster   = "a service key is published for it, but istiod shows this node no such cluster; " +
		"see exportTo, Sidecar and discoverySelectors, and the port"
	reasonStrictTLS = "accept mutual TLS; if the policy is STRICT they refuse callers from outside the mesh"
)

// joinHost joins the clusters, the endpoints and the mapping of one host.
func (n *Naming) joinHost(h *host, in JoinInput) hostRow {
	interfaces, c := n.interfacesOf(h.address, in.Mapping), h.cluster()
	o := n.omissionOf(h.address, interfaces)
	switch {
	case o != registry.Omission{}:
		return hostRow{skipped: o}
	case n.Interest != nil && !n.Interest.Wants(h.interestNames(interfaces)...):
		return hostRow{}
	case c == nil:
		if err := in.Rejected[clusterName(h.address)]; err != nil {
			return hostRow{skipped: registry.Omission{Reason: err.Error()}, unknown: err}
		}
		return hostRow{skipped: registry.Omission{Reason: reasonNoCluster}}
	}
	s := &registry.Service{
		Name: registry.Name(c.Attributes[AttributeHost]), Namespace: c.Namespace, Application: c.Application,
		Interfaces: interfaces, Attributes: c.Attributes,
	}
	a, edsNames, err := c.assignmentIn(in)
	r := hostRow{service: s, edsNames: edsNames, unknown: cmp.Or(err, in.Rejected[c.Name])}
	if a == nil {
		r.setNoEndpoints(c, err)
		return r
	}
	s.Endpoints = a.Endpoints
	if n.Subsets {
		subsets, names := h.subsetsOf(in)
		r.edsNames = append(r.edsNames, names...)
		s.Endpoints = withSubsets(a.Endpoints, subsets)
	}
	parts := []string{a.describeSkipped(), n.setEndpointInterfaces(s, h.address, in.Mapping)}
	r.skipped.Reason = strings.Join(slices.DeleteFunc(parts, func(text string) bool { return text == "" }), "; ")
	return r
}

// omissionOf returns why Naming leaves a host out; zero: it does not.
func (n *Naming) omissionOf(a naming.HostAddress, interfaces []registry.Interface) registry.Omission {
	unnamed := len(interfaces) == 0 && !n.isPlain(a)
	switch {
	case len(n.Only) > 0 && !matches(n.Only, a.Host):
		return registry.Omission{Reason: reasonExcluded, Cause: registry.Chosen}
	case unnamed && matches(n.Imported, a.Host):
		return registry.Omission{Reason: reasonImported, Cause: registry.Chosen}
	case unnamed:
		return registry.Omission{Reason: reasonUnnamed, Cause: registry.Unasked}
	}
	return registry.Omission{}
}

// setEndpointInterfaces sets the interfaces of each endpoint if the endpoints of a service are
// known to differ. An endpoint without a published key provides the interfaces of the first
// matching rule. Without a rule it is left out, and the returned text says so.
func (n *Naming) setEndpointInterfaces(
	s *registry.Service, a naming.HostAddress, m metadata.Mapping,
) (skipped string) {
	published, without := publishedInterfaces(a, m)
	if without == nil {
		return ""
	}
	var endpoints []registry.Endpoint
	var omitted []string
	for _, e := range s.Endpoints {
		e.Interfaces = make([]registry.Interface, 0, len(published))
		for i, p := range published {
			if !without[i][e.Host] {
				e.Interfaces = append(e.Interfaces, p)
			}
		}
		if len(e.Interfaces) == 0 {
			e.Interfaces = append(e.Interfaces, n.ruleInterfaces(a)...)
			s.Interfaces = union(s.Interfaces, e.Interfaces)
		}
		if len(e.Interfaces) > 0 || n.isPlain(a) {
			endpoints = append(endpoints, e)
		} else if e.Health.Offered() {
			omitted = append(omitted, e.Address())
		}
	}
	s.Endpoints = endpoints
	if len(omitted) == 0 {
		return ""
	}
	return registry.Counted(len(omitted), "endpoint has", "endpoints have") +
		" none of its service keys, such as " + omitted[0] + ": their Pods have no key"
}

// publishedInterfaces returns the interfaces that are published for an address. If not every
// endpoint provides all of them, without has the hosts that lack the interface of its index.
func publishedInterfaces(
	a naming.HostAddress, m metadata.Mapping,
) (all []registry.Interface, without []map[string]bool) {
	differ := false
	for _, k := range m.Keys(a) {
		if k.Category != naming.Providers {
			continue
		}
		all = append(all, registry.Interface{Name: k.Interface, Version: k.Version, Group: k.Group})
		hosts := make(map[string]bool)
		for host := range m.Without(k, a).All() {
			hosts[host], differ = true, true
		}
		without = append(without, hosts)
	}
	if !differ {
		return all, nil
	}
	return all, without
}

// union returns a, and the elements of b that are not in a.
func union(a, b []registry.Interface) []registry.Interface {
	out := slices.Clip(a)
	for _, i := range b {
		if !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out
}

// setNoEndpoints completes the row of a cluster without endpoints. A cluster whose endpoints
// are pending is not a service yet.
func (r *hostRow) setNoEndpoints(c *Cluster, err error) {
	switch {
	case c.Discovery == DiscoveryEDS:
		r.service = nil
	case err != nil:
		r.skipped.Reason = err.Error()
	default:
		r.skipped.Reason = reasonNoEndpoints
	}
}

// assignmentIn returns the endpoints of a cluster, and the EDS names that they depend on. The
// endpoints are nil with an error if they are not known. They are nil without an error if the
// cluster never has any.
func (c *Cluster) assignmentIn(in JoinInput) (a *Assignment, edsNames []string, err error) {
	switch c.Discovery {
	case DiscoveryEDS:
		a, err = in.Assignments[c.EDSName], in.Unknown[c.EDSName]
		if a == nil && err == nil {
			err = errEndpointsPending
		}
		return a, []string{c.EDSName}, err
	case DiscoveryInline:
		return c.Inline, nil, nil
	case DiscoveryOriginalDst:
		return nil, nil, errHeadless
	case DiscoveryEmpty:
		return nil, nil, nil
	default:
		return nil, nil, errUnsupportedDiscovery
	}
}

// describeSkipped describes the endpoints that were left out, or that may refuse callers;
// empty: none.
func (a *Assignment) describeSkipped() string {
	var parts []string
	for _, s := range a.Skipped {
		parts = append(parts, s.String())
	}
	if a.MutualTLS > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d endpoints %s", a.MutualTLS, len(a.Endpoints), reasonStrictTLS))
	}
	return strings.Join(parts, "; ")
}

// interfacesOf returns the interfaces that are published for a host, or else those of the
// first matching rule.
func (n *Naming) interfacesOf(a naming.HostAddress, m metadata.Mapping) []registry.Interface {
	if out, _ := publishedInterfaces(a, m); len(out) > 0 {
		return out
	}
	return n.ruleInterfaces(a)
}

// ruleInterfaces returns the interfaces of an address by the first matching rule; nil: none.
func (n *Naming) ruleInterfaces(a naming.HostAddress) (out []registry.Interface) {
	r, star := n.matchingRule(a)
	if r == nil {
		return nil
	}
	for _, i := range r.Interfaces {
		i.Name = strings.ReplaceAll(i.Name, "*", star)
		out = append(out, i)
	}
	return out
}

// matchingRule returns the first rule that matches an address, and the part of the host that
// its star matched; nil: none.
func (n *Naming) matchingRule(a naming.HostAddress) (*Rule, string) {
	for i := range n.Rules {
		r := &n.Rules[i]
		if r.Port != 0 && r.Port != a.Port {
			continue
		}
		if star, ok := r.Host.Capture(a.Host); ok {
			return r, star
		}
	}
	return nil, ""
}

// isPlain reports whether an address is a service even without interfaces.
func (n *Naming) isPlain(a naming.HostAddress) bool {
	r, _ := n.matchingRule(a)
	return r != nil || matches(n.Plain, a.Host)
}

func matches(patterns []naming.Pattern, host string) bool {
	return slices.ContainsFunc(patterns, func(p naming.Pattern) bool { return p.MatchHost(host) })
}

// withSubsets returns a copy of the endpoints with their subsets. Endpoints of one subset share
// their attributes.
func withSubsets(endpoints []registry.Endpoint, subsets map[string]string) []registry.Endpoint {
	if len(subsets) == 0 {
		return endpoints
	}
	type key struct{ subset, tls string }
	shared := make(map[key]registry.Attributes)
	out := slices.Clone(endpoints)
	for i := range out {
		k := key{subsets[out[i].Address()], out[i].Attributes[AttributeTLS]}
		if k.subset == "" {
			continue
		}
		if shared[k] == nil {
			a := registry.Attributes{AttributeSubset: k.subset}
			maps.Copy(a, out[i].Attributes)
			shared[k] = a
		}
		out[i].Attributes = shared[k]
	}
	return out
}
