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

// Rules tell how clusters and service keys are derived from objects.
type Rules struct {
	Domain  string        // of Services: name.namespace.svc.DOMAIN
	Keys    Keys          // the annotation and the label that hold service keys
	Decoder *mesh.Decoder // checks addresses

	// SubsetLabel is the label of Pods and endpoints whose value is their subset. If empty,
	// there are no subsets.
	SubsetLabel string

	// Pods tells that Pods are read. Then an endpoint whose Pod is unknown is left out.
	Pods bool
}

// owner is an object from which hosts are derived: a Service or a ServiceEntry.
type owner struct {
	isEntry bool
	objectName
}

func (o owner) String() string {
	if o.isEntry {
		return "serviceentry " + o.objectName.String()
	}
	return "service " + o.objectName.String()
}

// ownerIndex has owners by a property.
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

// Model is a set of objects, and the clusters and service keys that are derived from it. The
// same objects give the same result, whatever the order of events. It must not be used by
// several goroutines at the same time.
type Model struct {
	rules Rules

	// The objects, the owners to be derived again, and the namespaces from which nothing is
	// derived.
	*objectSet
	dirty            map[owner]struct{}
	hiddenNamespaces map[string]struct{}

	// The results, as of the last Update, and the owners by namespace and by the Pods and
	// Nodes (without a namespace) that they depend on.
	derived     map[owner]derived
	offers      map[string]map[owner]*offer // by name of the cluster
	byNamespace ownerIndex[string]
	dependents  ownerIndex[objectName]
}

// NewModel returns a model without objects.
func NewModel(r Rules) *Model {
	return &Model{
		rules: r, objectSet: newObjectSet(), dirty: map[owner]struct{}{}, hiddenNamespaces: map[string]struct{}{},
		derived: map[owner]derived{}, offers: map[string]map[owner]*offer{},
		byNamespace: ownerIndex[string]{}, dependents: ownerIndex[objectName]{},
	}
}

// Put adds an object, or replaces the object of the same kind and name. The object must not
// be changed after that.
func (m *Model) Put(object runtime.Object) {
	if n, ok := object.(*core.Node); ok && m.nodes[n.Name] != nil && zoneOf(m.nodes[n.Name]) == zoneOf(n) {
		m.put(object) // Nodes change often, but not their locality
		return
	}
	m.markOwners(object)
	m.put(object)
	m.markOwners(object)
}

// Remove removes the object of the same kind and name. Removing an object that does not
// exist has no effect.
func (m *Model) Remove(object runtime.Object) {
	m.markOwners(object)
	m.remove(object)
	m.markOwners(object)
}

// markOwners marks the owners that depend on the stored object of the same kind and name, to
// be derived again.
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
		m.markDependents(objectName{Name: o.Name})
	case *core.Pod:
		if p := m.pods[nameOf(o)]; p != nil {
			m.markDependents(nameOf(p))
			m.markSelecting(p.Namespace, func(o owner) bool {
				return o.isEntry && selects(m.selector(o), p.Labels)
			})
		}
	case *WorkloadEntry:
		if w := m.workloads[nameOf(o)]; w != nil {
			m.markSelecting(w.Namespace, func(o owner) bool { return m.maySelect(o, w) })
		}
	}
}

func (m *Model) mark(o owner) { m.dirty[o] = struct{}{} }

func (m *Model) markDependents(r objectName) { maps.Copy(m.dirty, m.dependents[r]) }

func (m *Model) markSelecting(namespace string, selects func(owner) bool) {
	for o := range m.byNamespace[namespace] {
		if selects(o) {
			m.mark(o)
		}
	}
}

// Hide derives nothing from the objects of a namespace until Show. An empty name means all
// namespaces.
func (m *Model) Hide(namespace string) {
	m.hiddenNamespaces[namespace] = struct{}{}
	m.markNamespace(namespace)
}

// Show ends Hide of the same namespace.
func (m *Model) Show(namespace string) {
	if _, hidden := m.hiddenNamespaces[namespace]; hidden {
		delete(m.hiddenNamespaces, namespace)
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
	Clusters map[string]*mesh.Cluster // by name; nil: removed
	Rejected map[string]error         // clusters that are kept because their object became unreadable
	Keys     bool                     // the result of Mapping or Unread changed
}

// Update derives the owners of changed objects again, and returns what changed since the
// last call.
func (m *Model) Update() Delta {
	d := Delta{Clusters: make(map[string]*mesh.Cluster), Rejected: make(map[string]error)}
	for o := range m.dirty {
		before, now := m.derived[o], m.derive(o)
		d.Keys = d.Keys || (now.readError == nil) != (before.readError == nil) ||
			!slices.Equal(now.claims, before.claims) || !slices.Equal(now.skipped, before.skipped)
		for name := range before.offers {
			if now.readError != nil {
				d.Rejected[name] = now.readError
			} else if before.readError != nil {
				d.Clusters[name] = nil // reported again below, which ends the rejection
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

// setOffers replaces the offers of an owner, and adds the names of the clusters that change.
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

// setDerived replaces the result of an owner, and updates the indexes.
func (m *Model) setDerived(o owner, before, now derived) {
	for r := range before.dependencies {
		if _, still := now.dependencies[r]; !still {
			m.dependents.remove(r, o)
		}
	}
	for r := range now.dependencies {
		m.dependents.add(r, o)
	}
	if m.exists(o) {
		m.derived[o] = now
		m.byNamespace.add(o.Namespace, o)
	} else {
		delete(m.derived, o)
		m.byNamespace.remove(o.Namespace, o)
	}
}

// derive returns the result of an owner. It is empty if the owner does not exist or is
// hidden. If its object cannot be read, it is the last result with a readError.
func (m *Model) derive(o owner) derived {
	_, all := m.hiddenNamespaces[""]
	_, here := m.hiddenNamespaces[o.Namespace]
	if all || here || !m.exists(o) {
		return derived{}
	}
	d := derivation{
		objectSet: m.objectSet, rules: m.rules, owner: o,
		hostsOfPod: make(map[objectName][]string), bearersByKey: make(map[clusterKey]*keyBearers),
	}
	d.offers, d.dependencies = make(map[string]*offer), make(map[objectName]struct{})
	if err := m.readErrorOf(o); err != nil {
		before := m.derived[o]
		before.readError = err
		return before
	}
	if o.isEntry {
		d.deriveEntry(m.entries[o.objectName])
	} else {
		d.deriveService(m.services[o.objectName])
	}
	return d.derived
}

// readErrorOf returns the error with which an owner, or a WorkloadEntry that it may select,
// could not be read.
func (m *Model) readErrorOf(o owner) error {
	if o.isEntry && m.entries[o.objectName].Spec == nil {
		return m.entries[o.objectName].Unread
	}
	for _, w := range m.unreadWorkloads {
		if w.Namespace == o.Namespace && m.maySelect(o, w) {
			return fmt.Errorf("workloadentry %s: %w", nameOf(w), w.Unread)
		}
	}
	return nil
}

// cluster merges the offers of a cluster, as istiod does. A Service comes before a
// ServiceEntry, and an older object before a younger. The first offer gives the cluster its
// properties; the other offers of its namespace add their endpoints.
func (m *Model) cluster(name string) *mesh.Cluster {
	all := m.offers[name]
	owners := slices.SortedFunc(maps.Keys(all), func(a, b owner) int {
		return cmp.Or(all[a].precedence(a)-all[b].precedence(b), cmp.Compare(all[a].created, all[b].created),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	first := all[owners[0]]
	if first.skipReason != "" {
		return &mesh.Cluster{Name: name, Err: errors.New(first.skipReason)}
	}
	var inline *mesh.Assignment
	if !first.isPassthrough {
		var endpoints []mesh.EndpointSpec
		for _, o := range owners {
			if p := all[o]; p.namespace == first.namespace && p.skipReason == "" && !p.isPassthrough {
				endpoints = append(endpoints, p.endpoints...)
			}
		}
		inline = m.rules.Decoder.Assignment(endpoints)
	}
	c := mesh.NewCluster(first.id, inline)
	c.Namespace, c.Application = first.namespace, first.application
	return c
}

// Unread returns an error if objects could never be read, so that their clusters and keys
// are unknown.
func (m *Model) Unread() error {
	var unread []string
	for o, d := range m.derived {
		if d.readError != nil && len(d.offers) == 0 {
			unread = append(unread, fmt.Sprintf("%s: %v", o, d.readError))
		}
	}
	if len(unread) == 0 {
		return nil
	}
	slices.Sort(unread)
	return errors.New(strings.Join(unread, "; "))
}

// countWithoutPod returns how many ready endpoints of a namespace are left out because their
// Pods are unknown. An empty name means all namespaces.
func (m *Model) countWithoutPod(namespace string) (n int) {
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

// Mapping returns the interface mapping, and the publications that are skipped, sorted.
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

// ClustersIn returns the names of the clusters of a namespace, sorted. An empty name means all
// namespaces.
func (m *Model) ClustersIn(namespace string) []string {
	var names []string
	for o, d := range m.derived {
		if namespace == "" || o.Namespace == namespace {
			names = slices.AppendSeq(names, maps.Keys(d.offers))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
