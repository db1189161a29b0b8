package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// Rules say what follows from objects.
type Rules struct {
	Domain      string        // of Services: name.namespace.svc.DOMAIN
	Keys        Keys          // which annotation and label hold service keys
	SubsetLabel string        // the label of Pods and endpoints whose value is their subset; empty: none
	Pods        bool          // Pods are read: an endpoint of an unknown Pod is left out
	Decoder     *mesh.Decoder // checks addresses
}

// owner is an object that hosts follow from: a Service or a ServiceEntry.
type owner struct {
	entry bool
	objectName
}

func (o owner) String() string {
	if o.entry {
		return "serviceentry " + o.objectName.String()
	}
	return "service " + o.objectName.String()
}

// ownerIndex is owners by a property.
type ownerIndex[K comparable] map[K]map[owner]struct{}

func (i ownerIndex[K]) add(k K, o owner) {
	if i[k] == nil {
		i[k] = make(map[owner]struct{})
	}
	i[k][o] = struct{}{}
}

func (i ownerIndex[K]) remove(k K, o owner) {
	delete(i[k], o)
	if len(i[k]) == 0 {
		delete(i, k)
	}
}

// Model is a set of objects and the clusters and service keys that follow from it.
// The same set has the same result, in any order of events. It is for use by
// one goroutine at a time.
type Model struct {
	rules Rules
	*objectSet

	derived     map[owner]derived
	byNamespace ownerIndex[string]          // those in derived
	users       ownerIndex[objectName]      // of Pods, and of Nodes (without a namespace), whose endpoints they have
	offers      map[string]map[owner]*offer // by name of cluster
	dirty       map[owner]struct{}
	hidden      map[string]struct{} // namespaces from which nothing follows yet
}

// NewModel returns a model without objects.
func NewModel(r Rules) *Model {
	return &Model{
		rules: r, objectSet: newObjectSet(), derived: map[owner]derived{}, byNamespace: ownerIndex[string]{}, users: ownerIndex[objectName]{},
		offers: map[string]map[owner]*offer{}, dirty: map[owner]struct{}{}, hidden: map[string]struct{}{},
	}
}

// Put adds an object, or replaces the one of the same kind and name. The object must
// not be written any more.
func (m *Model) Put(object runtime.Object) {
	if n, ok := object.(*core.Node); ok && m.nodes[n.Name] != nil && zoneOf(m.nodes[n.Name]) == zoneOf(n) {
		m.put(object) // which changes often, and its locality does not
		return
	}
	m.markOwners(object)
	m.put(object)
	m.markOwners(object)
}

// Remove removes the object of the same kind and name.
func (m *Model) Remove(object runtime.Object) {
	m.markOwners(object)
	m.remove(object)
	m.markOwners(object)
}

// markOwners marks the owners that depend on the stored object of the same kind and
// name.
func (m *Model) markOwners(object runtime.Object) {
	switch o := object.(type) {
	case *core.Service:
		m.mark(owner{false, nameOf(o)})
	case *ServiceEntry:
		m.mark(owner{true, nameOf(o)})
	case *discovery.EndpointSlice:
		if service, known := m.serviceOf[nameOf(o)]; known {
			m.mark(owner{false, service})
		}
	case *core.Node:
		m.markUsers(objectName{Name: o.Name})
	case *core.Pod:
		if p := m.pods[nameOf(o)]; p != nil {
			m.markUsers(nameOf(p))
			m.markSelecting(p.Namespace, func(o owner) bool { return o.entry && selects(m.selector(o), p.Labels) })
		}
	case *WorkloadEntry:
		if w := m.workloads[nameOf(o)]; w != nil {
			m.markSelecting(w.Namespace, func(o owner) bool { return m.maySelect(o, w) })
		}
	}
}

func (m *Model) mark(o owner) { m.dirty[o] = struct{}{} }

func (m *Model) markUsers(r objectName) { maps.Copy(m.dirty, m.users[r]) }

func (m *Model) markSelecting(namespace string, selects func(owner) bool) {
	for o := range m.byNamespace[namespace] {
		if selects(o) {
			m.mark(o)
		}
	}
}

// Hide has nothing follow from the objects of a namespace until Show; empty: of all.
func (m *Model) Hide(namespace string) {
	m.hidden[namespace] = struct{}{}
	m.markNamespace(namespace)
}

// Show ends Hide.
func (m *Model) Show(namespace string) {
	if _, hidden := m.hidden[namespace]; hidden {
		delete(m.hidden, namespace)
		m.markNamespace(namespace)
	}
}

func (m *Model) markNamespace(namespace string) {
	for s := range m.services {
		if namespace == "" || s.Namespace == namespace {
			m.mark(owner{false, s})
		}
	}
	for s := range m.entries {
		if namespace == "" || s.Namespace == namespace {
			m.mark(owner{true, s})
		}
	}
}

// Delta is what changed in a model.
type Delta struct {
	Clusters map[string]*mesh.Cluster // by name; nil: gone
	Rejected map[string]error         // clusters of objects that cannot be read any more, and are kept
	Keys     bool                     // service keys changed, or what of them could not be read
}

// Update derives what follows from changed objects, and returns what changed since
// the last call.
func (m *Model) Update() Delta {
	d := Delta{Clusters: make(map[string]*mesh.Cluster), Rejected: make(map[string]error)}
	for o := range m.dirty {
		before, now := m.derived[o], m.derive(o)
		d.Keys = d.Keys || (now.unread == nil) != (before.unread == nil) || !slices.Equal(now.claims, before.claims) || !slices.Equal(now.skipped, before.skipped)
		for name := range before.offers {
			if now.unread != nil {
				d.Rejected[name] = now.unread
			} else if before.unread != nil {
				d.Clusters[name] = nil // which ends the rejection
			}
		}
		m.setOffers(o, before.offers, now.offers, d.Clusters)
		m.setDerived(o, before, now)
	}
	clear(m.dirty)
	for name := range d.Clusters {
		if len(m.offers[name]) == 0 {
			delete(m.offers, name)
			continue
		}
		d.Clusters[name] = m.cluster(name)
	}
	return d
}

// setOffers records the offers of an owner, and which clusters change by that.
func (m *Model) setOffers(o owner, before, now map[string]*offer, changed map[string]*mesh.Cluster) {
	for name := range before {
		if now[name] == nil {
			delete(m.offers[name], o)
			changed[name] = nil
		}
	}
	for name, offered := range now {
		if before[name] != nil && before[name].equal(offered) {
			continue
		}
		if m.offers[name] == nil {
			m.offers[name] = make(map[owner]*offer)
		}
		m.offers[name][o] = offered
		changed[name] = nil
	}
}

func (m *Model) setDerived(o owner, before, now derived) {
	for r := range before.uses {
		if _, still := now.uses[r]; !still {
			m.users.remove(r, o)
		}
	}
	for r := range now.uses {
		m.users.add(r, o)
	}
	if m.exists(o) {
		m.derived[o] = now
		m.byNamespace.add(o.Namespace, o)
	} else {
		delete(m.derived, o)
		m.byNamespace.remove(o.Namespace, o)
	}
}

func (m *Model) derive(o owner) derived {
	_, all := m.hidden[""]
	_, here := m.hidden[o.Namespace]
	if all || here || !m.exists(o) {
		return derived{}
	}
	d := derivation{objectSet: m.objectSet, rules: m.rules, owner: o, hosts: make(map[objectName][]string), keys: make(map[clusterKey]*keyBearers)}
	d.offers, d.uses = make(map[string]*offer), make(map[objectName]struct{})
	if err := m.unreadOf(o); err != nil {
		before := m.derived[o]
		before.unread = err
		return before
	}
	if o.entry {
		d.deriveEntry(m.entries[o.objectName])
	} else {
		d.deriveService(m.services[o.objectName])
	}
	return d.derived
}

// unreadOf returns why an owner, or a WorkloadEntry that it may select, cannot be
// read.
func (m *Model) unreadOf(o owner) error {
	if o.entry && m.entries[o.objectName].Spec == nil {
		return m.entries[o.objectName].Unread
	}
	for _, w := range m.unread {
		if w.Namespace == o.Namespace && m.maySelect(o, w) {
			return fmt.Errorf("workloadentry %s: %w", nameOf(w), w.Unread)
		}
	}
	return nil
}

// cluster merges the offers of a cluster. A Service comes before a ServiceEntry, and
// the older before the younger, as with istiod. Those in the namespace of the first
// add their endpoints.
func (m *Model) cluster(name string) *mesh.Cluster {
	all := m.offers[name]
	owners := slices.SortedFunc(maps.Keys(all), func(a, b owner) int {
		return cmp.Or(all[a].rank(a)-all[b].rank(b), cmp.Compare(all[a].created, all[b].created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	first := all[owners[0]]
	if first.skip != "" {
		return &mesh.Cluster{Name: name, Err: errors.New(first.skip)}
	}
	var inline *mesh.Assignment
	if !first.none {
		var endpoints []mesh.EndpointSpec
		for _, o := range owners {
			if p := all[o]; p.namespace == first.namespace && p.skip == "" && !p.none {
				endpoints = append(endpoints, p.endpoints...)
			}
		}
		inline = m.rules.Decoder.Assignment(endpoints)
	}
	c := mesh.NewCluster(first.id, inline)
	c.Namespace, c.Application = first.namespace, first.application
	return c
}

// Unread returns why objects cannot be read that never could be, so that what follows
// from them is not known.
func (m *Model) Unread() error {
	var unread []string
	for o, d := range m.derived {
		if d.unread != nil && len(d.offers) == 0 {
			unread = append(unread, fmt.Sprintf("%s: %v", o, d.unread))
		}
	}
	if len(unread) == 0 {
		return nil
	}
	slices.Sort(unread)
	return errors.New(strings.Join(unread, "; "))
}

// podless returns how many ready endpoints of a namespace are left out because their Pods
// are not known; empty: of all.
func (m *Model) podless(namespace string) (n int) {
	for o, d := range m.derived {
		if namespace != "" && o.Namespace != namespace {
			continue
		}
		for _, offered := range d.offers {
			for _, e := range offered.endpoints {
				if e.Skip == reasonNoPod && e.Health.Offered() {
					n++
				}
			}
		}
	}
	return n
}

// Mapping returns the interface mapping, and what of it could not be read, in order.
func (m *Model) Mapping() (metadata.Mapping, []metadata.PublicationError) {
	var claims []metadata.Claim
	var skipped []metadata.PublicationError
	for _, d := range m.derived {
		claims = append(claims, d.claims...)
		skipped = append(skipped, d.skipped...)
	}
	slices.SortFunc(skipped, debug.CompareSkipped)
	return metadata.NewMapping(slices.Values(claims)), slices.Compact(skipped)
}

// In returns the names of the clusters that follow from the objects of a namespace;
// empty: of all.
func (m *Model) In(namespace string) []string {
	var names []string
	for o, d := range m.derived {
		if namespace == "" || o.Namespace == namespace {
			names = slices.AppendSeq(names, maps.Keys(d.offers))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
