package kube

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// derived is what follows from an owner.
type derived struct {
	offers  map[string]*offer // by name of cluster
	claims  []metadata.Claim
	skipped []metadata.PublicationError
	uses    map[objectName]struct{} // Pods, and Nodes (without a namespace)
	unread  error                   // why the object cannot be read; the rest is what it was
}

// derivation derives what follows from one owner.
type derivation struct {
	*objectSet
	rules Rules
	owner owner
	derived

	hosts map[objectName][]string // of the endpoints of a Pod
	keys  map[clusterKey]*keyBearers
}

// clusterKey is a key of a cluster.
type clusterKey struct {
	key naming.ServiceKey
	id  naming.Cluster
}

// keyBearers is which endpoints bear a key.
type keyBearers struct {
	all   bool // the owner itself bears it
	hosts map[string]struct{}
}

func (d *derivation) use(r objectName) { d.uses[r] = struct{}{} }

// usePod uses a Pod, which endpoints at some hosts are of.
func (d *derivation) usePod(r objectName, hosts ...string) {
	d.use(r)
	d.hosts[r] = append(d.hosts[r], hosts...)
}

// claimAll adds the keys of the owner, which are those of all endpoints, and those of
// its WorkloadEntries and Pods, at the ports of its hosts.
func (d *derivation) claimAll(m *meta.ObjectMeta, workloads []*WorkloadEntry, ports map[string][]hostPort) {
	for k := range d.claim(d.owner.String(), m, ports) {
		d.bearers(k).all = true
	}
	for _, w := range workloads {
		for k := range d.claim("workloadentry "+nameOf(w).String(), &w.ObjectMeta, ports) {
			d.bearers(k).add(w.Spec.GetAddress())
		}
	}
	for r, hosts := range d.hosts {
		if p := d.pods[r]; p != nil {
			for k := range d.claim("pod "+r.String(), &p.ObjectMeta, ports) {
				d.bearers(k).add(hosts...)
			}
		}
	}
	for k, by := range d.keys {
		d.claims = append(d.claims, metadata.Claim{Key: k.key, Address: k.id.HostAddress(), Client: d.owner.String(), Without: d.without(k.id, by)})
	}
	slices.SortFunc(d.claims, func(a, b metadata.Claim) int {
		return cmp.Or(a.Key.Compare(b.Key), a.Address.Compare(b.Address), cmp.Compare(a.Without, b.Without))
	})
	slices.SortFunc(d.skipped, debug.CompareSkipped)
	d.skipped = slices.Compact(d.skipped)
}

// claim yields the keys of an object at the ports of hosts.
func (d *derivation) claim(client string, m *meta.ObjectMeta, ports map[string][]hostPort) iter.Seq[clusterKey] {
	keys, skipped := d.rules.Keys.parse(client, m)
	d.skipped = append(d.skipped, skipped...)
	return func(yield func(clusterKey) bool) {
		for _, host := range slices.Sorted(maps.Keys(ports)) {
			for _, k := range keys {
				number, reason := k.portOf(ports[host])
				if reason != "" {
					d.skipped = append(d.skipped, metadata.PublicationError{Client: client, Text: naming.Quote(k.key.String()), Reason: reason})
				} else if !yield(clusterKey{k.key, naming.Cluster{Direction: naming.Outbound, Port: number, Host: host}}) {
					return
				}
			}
		}
	}
}

func (d *derivation) bearers(k clusterKey) *keyBearers {
	if d.keys[k] == nil {
		d.keys[k] = &keyBearers{hosts: make(map[string]struct{})}
	}
	return d.keys[k]
}

func (b *keyBearers) add(hosts ...string) {
	for _, text := range hosts {
		if host, reason := mesh.HostOf(text); reason == "" {
			b.hosts[host] = struct{}{}
		}
	}
}

// without returns the endpoints of a cluster that do not bear a key. Those that are not
// known may bear it.
func (d *derivation) without(id naming.Cluster, by *keyBearers) metadata.Hosts {
	o := d.offers[id.String()]
	if by.all || o == nil {
		return ""
	}
	others := make(map[string]struct{})
	for _, e := range o.endpoints {
		host, reason := mesh.HostOf(e.Host)
		if _, bears := by.hosts[host]; !bears && reason == "" && e.Skip == "" {
			others[host] = struct{}{}
		}
	}
	return metadata.HostsOf(maps.Keys(others))
}

func (d *derivation) zoneOfNode(name string) (zone string, known bool) {
	if name == "" {
		return "", false
	}
	d.use(objectName{Name: name})
	n := d.nodes[name]
	if n == nil {
		return "", false
	}
	return zoneOf(n), true
}

func zoneOf(n *core.Node) string {
	return locality(n.Labels[labelRegion], n.Labels[labelZone], n.Labels[labelSubzone])
}

// offer is what one owner provides at one port of one host.
type offer struct {
	id          naming.Cluster
	namespace   string
	application string
	created     int64               // in seconds
	endpoints   []mesh.EndpointSpec // sorted
	none        bool                // callers reach the address that they called: it has no endpoints for anybody
	skip        string              // why it is no service; empty: it is one
}

func (o *offer) equal(p *offer) bool {
	return o.id == p.id && o.namespace == p.namespace && o.application == p.application && o.created == p.created &&
		o.none == p.none && o.skip == p.skip && slices.Equal(o.endpoints, p.endpoints)
}

// sort sorts the endpoints and removes duplicates.
func (o *offer) sort() {
	slices.SortFunc(o.endpoints, func(a, b mesh.EndpointSpec) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Health, b.Health),
			cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Weight, b.Weight),
			cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.TLSMode, b.TLSMode), cmp.Compare(a.Subset, b.Subset), cmp.Compare(a.Skip, b.Skip))
	})
	o.endpoints = slices.Compact(o.endpoints)
}

// rank puts services before what is none, and Services before ServiceEntries.
func (o *offer) rank(by owner) (rank int) {
	if o.skip != "" {
		rank += 2
	}
	if by.entry {
		rank++
	}
	return rank
}
