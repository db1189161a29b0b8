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

// derived is the result of deriving one owner. It is immutable.
type derived struct {
	offers       map[string]*offer // by name of the cluster
	claims       []metadata.Claim
	skipped      []metadata.PublicationError
	dependencies map[objectName]struct{} // the Pods that were looked up, and the Nodes (without a namespace)

	// readError is the reason why the owner's object cannot be read. The other fields are
	// then those of its last readable version.
	readError error
}

// derivation derives one owner. It exists during one call of Model.derive.
type derivation struct {
	// Read only.
	*objectSet
	rules Rules
	owner owner

	// The result, and what it is collected from.
	derived
	hostsOfPod   map[objectName][]string // hosts of the endpoints that a Pod is behind
	bearersByKey map[clusterKey]*keyBearers
}

// clusterKey is a service key at one cluster.
type clusterKey struct {
	key naming.ServiceKey
	id  naming.Cluster
}

// keyBearers tells which endpoints of a cluster bear a key.
type keyBearers struct {
	everyEndpoint bool // the owner itself bears the key
	hosts         map[string]struct{}
}

// dependOn records that the result depends on a Pod or Node, whether it exists or not.
func (d *derivation) dependOn(r objectName) { d.dependencies[r] = struct{}{} }

// dependOnPod records that the result depends on a Pod, which is behind the endpoints at the
// given hosts.
func (d *derivation) dependOnPod(r objectName, hosts ...string) {
	d.dependOn(r)
	d.hostsOfPod[r] = append(d.hostsOfPod[r], hosts...)
}

// claimKeys adds the claims for all service keys at the ports of the owner's hosts. A key of
// the owner is borne by all endpoints, and a key of a WorkloadEntry or Pod by its own.
func (d *derivation) claimKeys(m *meta.ObjectMeta, workloads []*WorkloadEntry, ports map[string][]hostPort) {
	for k := range d.keysAtPorts(d.owner.String(), m, ports) {
		d.bearersOf(k).everyEndpoint = true
	}
	for _, w := range workloads {
		for k := range d.keysAtPorts("workloadentry "+nameOf(w).String(), &w.ObjectMeta, ports) {
			d.bearersOf(k).add(w.Spec.GetAddress())
		}
	}
	for r, hosts := range d.hostsOfPod {
		if p := d.pods[r]; p != nil {
			for k := range d.keysAtPorts("pod "+r.String(), &p.ObjectMeta, ports) {
				d.bearersOf(k).add(hosts...)
			}
		}
	}
	for k, by := range d.bearersByKey {
		d.claims = append(d.claims, metadata.Claim{
			Key: k.key, Address: k.id.HostAddress(), Client: d.owner.String(), Without: d.hostsWithoutKey(k.id, by),
		})
	}
	slices.SortFunc(d.claims, func(a, b metadata.Claim) int {
		return cmp.Or(a.Key.Compare(b.Key), a.Address.Compare(b.Address), cmp.Compare(a.Without, b.Without))
	})
	slices.SortFunc(d.skipped, debug.CompareSkipped)
	d.skipped = slices.Compact(d.skipped)
}

// keysAtPorts yields the keys of an object at the ports of hosts. Keys that cannot be read,
// or have no port, are added to skipped.
func (d *derivation) keysAtPorts(
	client string, m *meta.ObjectMeta, ports map[string][]hostPort,
) iter.Seq[clusterKey] {
	keys, skipped := d.rules.Keys.parse(client, m)
	d.skipped = append(d.skipped, skipped...)
	return func(yield func(clusterKey) bool) {
		for _, host := range slices.Sorted(maps.Keys(ports)) {
			for _, k := range keys {
				number, reason := k.portOf(ports[host])
				if reason != "" {
					e := metadata.PublicationError{Client: client, Text: naming.Quote(k.key.String()), Reason: reason}
					d.skipped = append(d.skipped, e)
					continue
				}
				id := naming.Cluster{Direction: naming.Outbound, Port: number, Host: host}
				if !yield(clusterKey{k.key, id}) {
					return
				}
			}
		}
	}
}

// bearersOf returns the bearers of a key, to be added to.
func (d *derivation) bearersOf(k clusterKey) *keyBearers {
	if d.bearersByKey[k] == nil {
		d.bearersByKey[k] = &keyBearers{hosts: make(map[string]struct{})}
	}
	return d.bearersByKey[k]
}

func (b *keyBearers) add(hosts ...string) {
	for _, text := range hosts {
		if host, reason := mesh.HostOf(text); reason == "" {
			b.hosts[host] = struct{}{}
		}
	}
}

// hostsWithoutKey returns the hosts of a cluster's endpoints that do not bear a key.
// Endpoints of unknown Pods are left out, because they may bear it.
func (d *derivation) hostsWithoutKey(id naming.Cluster, by *keyBearers) metadata.Hosts {
	o := d.offers[id.String()]
	if by.everyEndpoint || o == nil {
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

// zoneOfNode returns the locality of a Node, and whether the Node is known.
func (d *derivation) zoneOfNode(name string) (zone string, known bool) {
	if name == "" {
		return "", false
	}
	d.dependOn(objectName{Name: name})
	n := d.nodes[name]
	if n == nil {
		return "", false
	}
	return zoneOf(n), true
}

func zoneOf(n *core.Node) string {
	return locality(n.Labels[labelRegion], n.Labels[labelZone], n.Labels[labelSubzone])
}

// offer is what one owner provides for one cluster: one port of one host.
type offer struct {
	id          naming.Cluster
	namespace   string
	application string
	created     int64               // in Unix seconds
	endpoints   []mesh.EndpointSpec // sorted

	// isPassthrough tells that the cluster has no endpoints, because each caller reaches the
	// address that it called.
	isPassthrough bool

	// skipReason is the reason why the cluster is not a service. It is empty if it is one.
	skipReason string
}

func (o *offer) equal(p *offer) bool {
	return o.id == p.id && o.namespace == p.namespace && o.application == p.application && o.created == p.created &&
		o.isPassthrough == p.isPassthrough && o.skipReason == p.skipReason && slices.Equal(o.endpoints, p.endpoints)
}

// sortEndpoints sorts the endpoints and removes duplicates.
func (o *offer) sortEndpoints() {
	slices.SortFunc(o.endpoints, func(a, b mesh.EndpointSpec) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Health, b.Health),
			cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Weight, b.Weight),
			cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.TLSMode, b.TLSMode),
			cmp.Compare(a.Subset, b.Subset), cmp.Compare(a.Skip, b.Skip))
	})
	o.endpoints = slices.Compact(o.endpoints)
}

// precedence returns a number that is lower for offers that come first: services before
// skipped offers, and then Services before ServiceEntries.
func (o *offer) precedence(by owner) (rank int) {
	if o.skipReason != "" {
		rank += 2
	}
	if by.isEntry {
		rank++
	}
	return rank
}
