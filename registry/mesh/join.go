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

// Naming says which hosts of the mesh become services, and under which names,
// beside those that a service key is published for.
type Naming struct {
	Rules []Rule           // the first that matches names a host for which no key is published
	Plain []naming.Pattern // hosts that become services though nothing names them; `*` is all
	Only  []naming.Pattern // hosts that may become services at all; none means all

	// Interest limits the services to those that somebody asks for, by host, host
	// address, application, interface or service key; nil: all.
	Interest *registry.Interest

	// Subsets adds to every endpoint the subsets that it belongs to. For that the
	// endpoints of all subset clusters are read as well.
	Subsets bool
}

// Rule names the services at some hosts.
type Rule struct {
	Host      naming.Pattern
	Port      uint16 // 0: all
	Interface string // its * stands for what the * of Host matched; empty: a host without interfaces
	Version   string
	Group     string
}

// View is everything that is known of the mesh at one time.
type View struct {
	Clusters    map[string]*Cluster    // by name
	Assignments map[string]*Assignment // by EDS name
	Mapping     metadata.Mapping

	// Rejected and Silent say why the newest of a cluster (by name) or of
	// endpoints (by EDS name) cannot be known; what is held is the last known.
	Rejected map[string]error
	Silent   map[string]error
}

// Joined is what follows from a view.
type Joined struct {
	Services []*registry.Service     // by name
	Skipped  map[string]string       // what was left out wholly or in part, and why
	Unknown  map[registry.Name]error // services that cannot be known; some have a row all the same
	Needed   map[string]struct{}     // EDS names that have to be asked for
}

// Join joins clusters, endpoints and mapping. It is pure: the same view gives
// the same result, whatever order it came about in.
func (n *Naming) Join(v View) Joined {
	out := Joined{
		Skipped: make(map[string]string), Unknown: make(map[registry.Name]error), Needed: make(map[string]struct{}),
	}
	for _, c := range v.Clusters {
		if reason := c.skip(); reason != "" {
			out.Skipped[c.Name] = reason
		}
	}
	for _, h := range v.hosts() {
		r := n.row(h, v)
		if r.service != nil {
			out.Services = append(out.Services, r.service)
		}
		if r.skipped != "" {
			out.Skipped[h.address.String()] = r.skipped
		}
		if r.unknown != nil {
			out.Unknown[registry.Name(h.address.String())] = r.unknown
		}
		for _, name := range r.needed {
			out.Needed[name] = struct{}{}
		}
	}
	slices.SortFunc(out.Services, func(a, b *registry.Service) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// hosts returns every host that clusters, errors or the mapping name.
func (v *View) hosts() map[naming.HostAddress]*host {
	hosts := make(map[naming.HostAddress]*host)
	at := func(a naming.HostAddress) *host {
		if hosts[a] == nil {
			hosts[a] = &host{address: a}
		}
		return hosts[a]
	}
	for _, c := range v.Clusters {
		if c.Err == nil {
			at(c.Address).add(c)
		}
	}
	for name := range v.Rejected {
		id, err := naming.ParseCluster(name)
		if a := id.HostAddress(); err == nil && v.Rejected[wholeName(a)] != nil {
			at(a)
		}
	}
	for _, addresses := range v.Mapping.All() {
		for _, a := range addresses {
			at(a)
		}
	}
	return hosts
}

// host is the clusters of one host address.
type host struct {
	address naming.HostAddress
	wholes  []*Cluster // without a subset, by name; several where the host is spelled in several ways
	subsets []*Cluster // by name
}

// whole returns the cluster without a subset, nil where there is none. Of
// several that are one but for their spelling the first by name counts.
func (h *host) whole() *Cluster {
	if len(h.wholes) == 0 {
		return nil
	}
	return h.wholes[0]
}

// add takes a cluster in.
func (h *host) add(c *Cluster) {
	if c.ID.Subset == "" {
		h.wholes = insert(h.wholes, c)
	} else {
		h.subsets = insert(h.subsets, c)
	}
}

// remove takes a cluster out.
func (h *host) remove(c *Cluster) {
	same := func(o *Cluster) bool { return o == c }
	h.wholes = slices.DeleteFunc(h.wholes, same)
	h.subsets = slices.DeleteFunc(h.subsets, same)
}

// insert puts a cluster in its place by name, and takes out the one of the
// same name.
func insert(sorted []*Cluster, c *Cluster) []*Cluster {
	at, found := slices.BinarySearchFunc(sorted, c.Name, func(c *Cluster, name string) int {
		return cmp.Compare(c.Name, name)
	})
	if found {
		sorted[at] = c
		return sorted
	}
	return slices.Insert(sorted, at, c)
}

// wholeName returns the name of the cluster without a subset of an address, as
// istiod writes it.
func wholeName(a naming.HostAddress) string {
	return naming.Cluster{Direction: naming.Outbound, Port: a.Port, Host: a.Host}.String()
}

// skip is the reason that status shows of a cluster that is no service; none
// for those that every proxy has.
func (c *Cluster) skip() string {
	if c.Err == nil || errors.Is(c.Err, errInner) {
		return ""
	}
	return c.Err.Error()
}

// row is what follows for one host.
type row struct {
	service *registry.Service
	skipped string
	unknown error
	needed  []string
}

// The reasons that concern a whole host. They are shared: status may hold one
// for each of ten thousand hosts.
var (
	errEndpointsPending = errors.New("istiod has not reported its endpoints yet")
	errHeadless         = errors.New("headless: istiod reports its endpoints to nodes of type router only; set node.type: router")
	errNoKind           = errors.New("a kind of cluster that this version cannot read")
)

const (
	reasonNoEndpoints = "has no endpoints (resolution NONE or alike): callers reach the address that they called"
	reasonUnnamed     = "no service key is published for it, and no rule of bridges[].names gives it one"
	reasonExcluded    = "not among the hosts that are to be exported"
	reasonNoCluster   = "a service key is published for it, but istiod shows this node no such cluster; " +
		"see exportTo, Sidecar and discoverySelectors, and the port"
	reasonPlainTLS = "take mutual TLS; where the policy is STRICT they refuse callers from outside the mesh"
)

// row works out the row of one host.
func (n *Naming) row(h *host, v View) row {
	interfaces := n.interfaces(h.address, v.Mapping)
	switch {
	case len(n.Only) > 0 && !matches(n.Only, h.address.Host):
		return row{skipped: reasonExcluded}
	case len(interfaces) == 0 && !n.plain(h.address):
		return row{skipped: reasonUnnamed}
	case !n.wants(h, interfaces):
		return row{}
	case h.whole() == nil:
		if err := v.Rejected[wholeName(h.address)]; err != nil {
			return row{skipped: err.Error(), unknown: err}
		}
		return row{skipped: reasonNoCluster}
	}
	c := h.whole()
	s := &registry.Service{
		Name: registry.Name(c.Attributes[AttributeHost]), Namespace: c.Namespace, Application: c.Application,
		Interfaces: interfaces, Attributes: c.Attributes,
	}
	a, needed, err := c.assignment(v)
	r := row{service: s, needed: needed, unknown: cmp.Or(err, v.Rejected[c.Name])}
	if a == nil {
		r.withoutEndpoints(c, err)
		return r
	}
	s.Endpoints = a.Endpoints
	if n.Subsets {
		subsets, more := h.subsetsOf(v)
		r.needed = append(r.needed, more...)
		s.Endpoints = withSubsets(a.Endpoints, subsets)
	}
	r.skipped = a.explain()
	return r
}

// withoutEndpoints says why there are none; a cluster whose endpoints are still
// to come is no service without endpoints: nothing is known of it.
func (r *row) withoutEndpoints(c *Cluster, err error) {
	switch {
	case c.Discovery == DiscoveryEDS:
		r.service = nil
	case err != nil:
		r.skipped = err.Error()
	default:
		r.skipped = reasonNoEndpoints
	}
}

// wants reports whether somebody asks for what a host is or provides.
func (n *Naming) wants(h *host, interfaces []registry.Interface) bool {
	if n.Interest == nil {
		return true
	}
	return n.Interest.Wants(h.names(interfaces)...)
}

// names returns all names by which a host may be asked for.
func (h *host) names(interfaces []registry.Interface) []string {
	names := []string{h.address.Host, h.address.String()}
	if c := h.whole(); c != nil && c.Application != "" {
		names = append(names, c.Application)
	}
	for _, i := range interfaces {
		key := naming.ServiceKey{Category: naming.Providers, Interface: i.Name, Version: i.Version, Group: i.Group}
		names = append(names, i.Name, key.String())
	}
	return names
}

// assignment returns the endpoints of a cluster with what has to be asked for
// to know them. The endpoints are nil where they cannot be known, and without
// an error where there are none for anybody.
func (c *Cluster) assignment(v View) (a *Assignment, needed []string, err error) {
	switch c.Discovery {
	case DiscoveryEDS:
		a, err = v.Assignments[c.EDSName], v.Silent[c.EDSName]
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
		return nil, nil, errNoKind
	}
}

// explain says what was left out of an assignment, empty where nothing was.
func (a *Assignment) explain() string {
	var parts []string
	for _, l := range a.Left {
		parts = append(parts, l.String())
	}
	if a.MutualTLS > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d endpoints %s", a.MutualTLS, len(a.Endpoints), reasonPlainTLS))
	}
	return strings.Join(parts, "; ")
}

// interfaces returns what a host provides: what is published for it, or else
// what the first rule says.
func (n *Naming) interfaces(a naming.HostAddress, m metadata.Mapping) []registry.Interface {
	var out []registry.Interface
	for _, k := range m.Keys(a) {
		if k.Category == naming.Providers {
			out = append(out, registry.Interface{Name: k.Interface, Version: k.Version, Group: k.Group})
		}
	}
	if len(out) > 0 {
		return out
	}
	if r, star := n.rule(a); r != nil && r.Interface != "" {
		name := strings.ReplaceAll(r.Interface, "*", star)
		return []registry.Interface{{Name: name, Version: r.Version, Group: r.Group}}
	}
	return nil
}

// rule returns the first rule that fits an address, and what its star stands
// for; nil where none does.
func (n *Naming) rule(a naming.HostAddress) (*Rule, string) {
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

// plain reports whether an address becomes a service without interfaces.
func (n *Naming) plain(a naming.HostAddress) bool {
	r, _ := n.rule(a)
	return r != nil || matches(n.Plain, a.Host)
}

func matches(patterns []naming.Pattern, host string) bool {
	return slices.ContainsFunc(patterns, func(p naming.Pattern) bool { return p.MatchHost(host) })
}

// subsetsOf returns the subsets of each address, and what has to be asked for.
func (h *host) subsetsOf(v View) (subsets map[string]string, needed []string) {
	subsets = make(map[string]string)
	for _, c := range h.subsets {
		a, names, _ := c.assignment(v)
		needed = append(needed, names...)
		if a == nil {
			continue // an endpoint without its subset is still an endpoint
		}
		for _, e := range a.Endpoints {
			key := e.Address()
			if at := subsets[key]; at != "" {
				subsets[key] = at + "," + c.ID.Subset
			} else {
				subsets[key] = c.ID.Subset
			}
		}
	}
	return subsets, needed
}

// withSubsets returns the endpoints with their subsets. Endpoints of one
// subset share their attributes.
func withSubsets(endpoints []registry.Endpoint, subsets map[string]string) []registry.Endpoint {
	if len(subsets) == 0 {
		return endpoints
	}
	type kind struct {
		subset string
		tls    string
	}
	shared := make(map[kind]registry.Attributes)
	out := slices.Clone(endpoints)
	for i := range out {
		k := kind{subsets[out[i].Address()], out[i].Attributes[AttributeTLS]}
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
