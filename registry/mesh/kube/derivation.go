package kube

import (
	"cmp"
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
	uses    map[ref]struct{} // Pods, and Nodes (without a namespace)
	unread  error            // why the object cannot be read; the rest is what it was
}

// derivation derives what follows from one owner.
type derivation struct {
	*store
	rules Rules
	owner owner
	derived
}

func (d *derivation) use(r ref) { d.uses[r] = struct{}{} }

// claimAll adds the keys of the owner, of its WorkloadEntries and of its Pods, at the
// ports of its hosts.
func (d *derivation) claimAll(m *meta.ObjectMeta, workloads []*WorkloadEntry, ports map[string][]port) {
	d.claim(d.owner.String(), m, ports)
	for _, w := range workloads {
		d.claim("workloadentry "+refOf(w).String(), &w.ObjectMeta, ports)
	}
	for r := range d.uses {
		if p := d.pods[r]; p != nil {
			d.claim("pod "+r.String(), &p.ObjectMeta, ports)
		}
	}
	slices.SortFunc(d.claims, func(a, b metadata.Claim) int { return cmp.Or(a.Key.Compare(b.Key), a.Address.Compare(b.Address)) })
	d.claims = slices.Compact(d.claims)
	slices.SortFunc(d.skipped, debug.CompareSkipped)
	d.skipped = slices.Compact(d.skipped)
}

func (d *derivation) claim(client string, m *meta.ObjectMeta, ports map[string][]port) {
	keys, skipped := d.rules.Keys.parse(client, m)
	d.skipped = append(d.skipped, skipped...)
	for _, host := range slices.Sorted(maps.Keys(ports)) {
		for _, k := range keys {
			number, reason := k.portOf(ports[host])
			if reason != "" {
				d.skipped = append(d.skipped, metadata.PublicationError{Client: client, Text: naming.Quote(k.key.String()), Reason: reason})
				continue
			}
			address := naming.Cluster{Direction: naming.Outbound, Port: number, Host: host}.HostAddress()
			d.claims = append(d.claims, metadata.Claim{Key: k.key, Address: address, Client: d.owner.String()})
		}
	}
}

func (d *derivation) zoneOfNode(name string) (zone string, known bool) {
	if name == "" {
		return "", false
	}
	d.use(ref{Name: name})
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
