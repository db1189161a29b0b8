package kube

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// Rules say what follows from objects.
type Rules struct {
	Domain      string        // of Services: name.namespace.svc.DOMAIN
	Keys        Keys          // where service keys are
	SubsetLabel string        // the label of Pods and endpoints whose value is their subset; empty: none
	Pods        bool          // Pods are read: an endpoint of one that is not known is left out
	Reading     *mesh.Decoder // which addresses are taken
}

// ref is namespace and name of an object.
type ref = types.NamespacedName

// owner is an object that hosts follow from: a Service or a ServiceEntry.
type owner struct {
	entry bool
	ref
}

func (o owner) String() string {
	if o.entry {
		return "serviceentry " + o.ref.String()
	}
	return "service " + o.ref.String()
}

// World is a set of objects, and what follows from it: the same of the same set,
// whatever order it came about in. It is for use by one goroutine at a time.
type World struct {
	rules Rules

	services  map[ref]*core.Service
	slices    map[ref]map[string]*discovery.EndpointSlice // by Service and name
	serviceOf map[ref]ref                                 // of a slice
	pods      map[ref]*core.Pod
	nodes     map[string]*core.Node
	entries   map[ref]*ServiceEntry
	workloads map[ref]*WorkloadEntry
	unread    map[ref]*WorkloadEntry // those of which the newest form cannot be read

	in      map[string]map[owner]struct{} // by namespace
	users   map[used]map[owner]struct{}   // whose endpoints are there
	derived map[owner]derived
	offers  map[string]map[owner]*offer // by name of cluster
	dirty   map[owner]struct{}
	hidden  map[string]struct{} // namespaces of which nothing is told yet
}

// used is a Pod, or a Node where the namespace is empty, that has endpoints.
type used struct{ ref }

// NewWorld returns a world without objects.
func NewWorld(r Rules) *World {
	return &World{
		rules: r, services: map[ref]*core.Service{}, slices: map[ref]map[string]*discovery.EndpointSlice{}, serviceOf: map[ref]ref{},
		pods: map[ref]*core.Pod{}, nodes: map[string]*core.Node{}, entries: map[ref]*ServiceEntry{}, workloads: map[ref]*WorkloadEntry{}, unread: map[ref]*WorkloadEntry{},
		in: map[string]map[owner]struct{}{}, users: map[used]map[owner]struct{}{}, derived: map[owner]derived{},
		offers: map[string]map[owner]*offer{}, dirty: map[owner]struct{}{}, hidden: map[string]struct{}{},
	}
}

// Put takes an object in, in place of the one of the same kind and name. It must
// not be written any more.
func (w *World) Put(object runtime.Object) {
	switch o := object.(type) {
	case *core.Service:
		w.services[refOf(o)] = o
		w.touch(owner{ref: refOf(o)})
	case *discovery.EndpointSlice:
		w.putSlice(o)
	case *core.Pod:
		w.touchPod(w.pods[refOf(o)])
		w.pods[refOf(o)] = o
		w.touchPod(o)
	case *core.Node:
		if old := w.nodes[o.Name]; old == nil || !sameLocality(old, o) {
			w.touchUsers(used{ref{Name: o.Name}})
		}
		w.nodes[o.Name] = o
	case *ServiceEntry:
		w.entries[refOf(o)] = o
		w.touch(owner{true, refOf(o)})
	case *WorkloadEntry:
		w.touchWorkload(w.workloads[refOf(o)])
		if old := w.workloads[refOf(o)]; o.Unread != nil && old != nil { // whose labels say where it belongs
			with := *o
			with.Spec, o = old.Spec, &with
		}
		w.workloads[refOf(o)] = o
		delete(w.unread, refOf(o))
		if o.Unread != nil {
			w.unread[refOf(o)] = o
		}
		w.touchWorkload(o)
	}
}

// Remove takes an object out; of the one that is given only kind and name count.
func (w *World) Remove(object runtime.Object) {
	switch o := object.(type) {
	case *core.Service:
		delete(w.services, refOf(o))
		w.touch(owner{ref: refOf(o)})
	case *discovery.EndpointSlice:
		w.removeSlice(refOf(o))
	case *core.Pod:
		w.touchPod(w.pods[refOf(o)])
		delete(w.pods, refOf(o))
	case *core.Node:
		delete(w.nodes, o.Name)
		w.touchUsers(used{ref{Name: o.Name}})
	case *ServiceEntry:
		delete(w.entries, refOf(o))
		w.touch(owner{true, refOf(o)})
	case *WorkloadEntry:
		w.touchWorkload(w.workloads[refOf(o)])
		delete(w.workloads, refOf(o))
		delete(w.unread, refOf(o))
	}
}

func refOf(o meta.Object) ref { return ref{Namespace: o.GetNamespace(), Name: o.GetName()} }

func (w *World) putSlice(s *discovery.EndpointSlice) {
	w.removeSlice(refOf(s))
	name := s.Labels[discovery.LabelServiceName]
	if name == "" {
		return
	}
	service := ref{Namespace: s.Namespace, Name: name}
	if w.slices[service] == nil {
		w.slices[service] = make(map[string]*discovery.EndpointSlice)
	}
	w.slices[service][s.Name], w.serviceOf[refOf(s)] = s, service
	w.touch(owner{ref: service})
}

func (w *World) removeSlice(s ref) {
	service, known := w.serviceOf[s]
	if !known {
		return
	}
	delete(w.serviceOf, s)
	delete(w.slices[service], s.Name)
	if len(w.slices[service]) == 0 {
		delete(w.slices, service)
	}
	w.touch(owner{ref: service})
}

func (w *World) touch(o owner) { w.dirty[o] = struct{}{} }

func (w *World) touchUsers(u used) {
	for o := range w.users[u] {
		w.touch(o)
	}
}

// touchPod has everything worked out anew that a Pod is an endpoint of, or may be.
func (w *World) touchPod(p *core.Pod) {
	if p == nil {
		return
	}
	w.touchUsers(used{refOf(p)})
	for o := range w.in[p.Namespace] {
		if o.entry && selects(w.selector(o), p.Labels) {
			w.touch(o)
		}
	}
}

func (w *World) touchWorkload(e *WorkloadEntry) {
	if e == nil {
		return
	}
	for o := range w.in[e.Namespace] {
		if w.mayHave(o, e) {
			w.touch(o)
		}
	}
}

// mayHave reports whether a WorkloadEntry may be an endpoint of an owner: where its spec
// was never read that holds for each ServiceEntry that selects any.
func (w *World) mayHave(o owner, e *WorkloadEntry) bool {
	selector := w.selector(o)
	return selects(selector, e.labels()) || e.Spec == nil && o.entry && len(selector) > 0
}

// selector returns by which labels an owner selects workloads.
func (w *World) selector(o owner) map[string]string {
	if s := w.services[o.ref]; s != nil && !o.entry {
		return s.Spec.Selector
	}
	if s := w.entries[o.ref]; s != nil && o.entry {
		return s.Spec.GetWorkloadSelector().GetLabels()
	}
	return nil
}

// labels are those of the entry with those of the object, which give way.
func (w *WorkloadEntry) labels() map[string]string {
	if len(w.Labels) == 0 {
		return w.Spec.GetLabels()
	}
	all := maps.Clone(w.Labels)
	maps.Copy(all, w.Spec.GetLabels())
	return all
}

// selects reports whether a selector selects labels; an empty one selects none.
func selects(selector, labels map[string]string) bool {
	if len(selector) == 0 {
		return false
	}
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Hide has nothing follow from the objects of a namespace until Show; empty: of
// all of them.
func (w *World) Hide(namespace string) {
	w.hidden[namespace] = struct{}{}
	w.touchIn(namespace)
}

// Show ends Hide.
func (w *World) Show(namespace string) {
	if _, hidden := w.hidden[namespace]; hidden {
		delete(w.hidden, namespace)
		w.touchIn(namespace)
	}
}

func (w *World) touchIn(namespace string) {
	for s := range w.services {
		if namespace == "" || s.Namespace == namespace {
			w.touch(owner{ref: s})
		}
	}
	for s := range w.entries {
		if namespace == "" || s.Namespace == namespace {
			w.touch(owner{true, s})
		}
	}
}

// Delta is what became of a world since the last.
type Delta struct {
	Clusters map[string]*mesh.Cluster // by name; nil where gone
	Rejected map[string]error         // clusters of objects that cannot be read any more, and stay as they were
	Keys     bool                     // service keys changed, or what of them could not be read
}

// Settle works out what follows from what changed.
func (w *World) Settle() Delta {
	d := Delta{Clusters: make(map[string]*mesh.Cluster), Rejected: make(map[string]error)}
	for o := range w.dirty {
		before, now := w.derived[o], w.derive(o)
		d.Keys = d.Keys || (now.unread == nil) != (before.unread == nil) || !slices.Equal(now.claims, before.claims) || !slices.Equal(now.skipped, before.skipped)
		for name := range before.offers {
			if now.unread != nil {
				d.Rejected[name] = now.unread
			} else if before.unread != nil {
				d.Clusters[name] = nil // which takes the rejection back
			}
		}
		w.offer(o, before.offers, now.offers, d.Clusters)
		w.use(o, before.uses, now.uses)
		w.keep(o, now)
	}
	clear(w.dirty)
	for name := range d.Clusters {
		if len(w.offers[name]) == 0 {
			delete(w.offers, name)
			continue
		}
		d.Clusters[name] = w.cluster(name)
	}
	return d
}

// offer notes what an owner offers, and which clusters change by that.
func (w *World) offer(o owner, before, now map[string]*offer, changed map[string]*mesh.Cluster) {
	for name := range before {
		if _, still := now[name]; !still {
			delete(w.offers[name], o)
			changed[name] = nil
		}
	}
	for name, offered := range now {
		if was, ok := before[name]; ok && was.equal(offered) {
			continue
		}
		if w.offers[name] == nil {
			w.offers[name] = make(map[owner]*offer)
		}
		w.offers[name][o] = offered
		changed[name] = nil
	}
}

func (w *World) keep(o owner, now derived) {
	if !w.exists(o) {
		delete(w.derived, o)
		delete(w.in[o.Namespace], o)
		if len(w.in[o.Namespace]) == 0 {
			delete(w.in, o.Namespace)
		}
		return
	}
	w.derived[o] = now
	if w.in[o.Namespace] == nil {
		w.in[o.Namespace] = make(map[owner]struct{})
	}
	w.in[o.Namespace][o] = struct{}{}
}

func (w *World) exists(o owner) bool {
	if o.entry {
		return w.entries[o.ref] != nil
	}
	return w.services[o.ref] != nil
}

// use notes whose endpoints an owner has.
func (w *World) use(o owner, before, now map[used]struct{}) {
	for u := range before {
		if _, still := now[u]; still {
			continue
		}
		delete(w.users[u], o)
		if len(w.users[u]) == 0 {
			delete(w.users, u)
		}
	}
	for u := range now {
		if w.users[u] == nil {
			w.users[u] = make(map[owner]struct{})
		}
		w.users[u][o] = struct{}{}
	}
}

func (w *World) derive(o owner) derived {
	_, all := w.hidden[""]
	_, here := w.hidden[o.Namespace]
	switch {
	case all || here || !w.exists(o):
		return derived{}
	case o.entry && w.entries[o.ref].Spec == nil:
		before := w.derived[o]
		before.unread = w.entries[o.ref].Unread
		return before
	}
	for _, e := range w.unread {
		if e.Namespace == o.Namespace && w.mayHave(o, e) {
			before := w.derived[o]
			before.unread = fmt.Errorf("workloadentry %s: %w", refOf(e), e.Unread)
			return before
		}
	}
	if o.entry {
		return w.deriveEntry(w.entries[o.ref])
	}
	return w.deriveService(w.services[o.ref])
}

// Unread returns why objects cannot be read that never could be: what they are of is
// not known. nil where there are none.
func (w *World) Unread() error {
	var unread []string
	for o, d := range w.derived {
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

// Mapping returns the interface mapping, and what of it could not be read, in
// order.
func (w *World) Mapping() (metadata.Mapping, []metadata.PublicationError) {
	var skipped []metadata.PublicationError
	for _, d := range w.derived {
		skipped = append(skipped, d.skipped...)
	}
	slices.SortFunc(skipped, func(a, b metadata.PublicationError) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Reason, b.Reason))
	})
	return metadata.NewMapping(w.claims()), slices.Compact(skipped)
}

func (w *World) claims() iter.Seq[metadata.Claim] {
	return func(yield func(metadata.Claim) bool) {
		for _, d := range w.derived {
			for _, c := range d.claims {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// In returns the names of the clusters that objects of a namespace make; empty:
// of all.
func (w *World) In(namespace string) []string {
	var names []string
	for o, d := range w.derived {
		if namespace == "" || o.Namespace == namespace {
			names = slices.AppendSeq(names, maps.Keys(d.offers))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
