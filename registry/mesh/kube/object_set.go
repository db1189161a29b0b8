package kube

import (
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// objectName is the namespace and name of an object.
type objectName = types.NamespacedName

func nameOf(o meta.Object) objectName {
	return objectName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// objectSet has the newest version of each object that was read.
type objectSet struct {
	services        map[objectName]*core.Service
	slices          map[objectName]map[string]*discovery.EndpointSlice // by Service and name
	serviceOf       map[objectName]objectName                          // by slice
	pods            map[objectName]*core.Pod
	nodes           map[string]*core.Node
	entries         map[objectName]*ServiceEntry
	workloads       map[objectName]*WorkloadEntry
	unreadWorkloads map[objectName]*WorkloadEntry // those whose newest version cannot be read
}

func newObjectSet() *objectSet {
	return &objectSet{
		services: map[objectName]*core.Service{}, slices: map[objectName]map[string]*discovery.EndpointSlice{},
		serviceOf: map[objectName]objectName{}, pods: map[objectName]*core.Pod{}, nodes: map[string]*core.Node{},
		entries: map[objectName]*ServiceEntry{}, workloads: map[objectName]*WorkloadEntry{},
		unreadWorkloads: map[objectName]*WorkloadEntry{},
	}
}

func (s *objectSet) put(object runtime.Object) {
	switch o := object.(type) {
	case *core.Service:
		s.services[nameOf(o)] = o
	case *discovery.EndpointSlice:
		s.remove(o)
		name := o.Labels[discovery.LabelServiceName]
		if name == "" {
			return
		}
		service := objectName{Namespace: o.Namespace, Name: name}
		if s.slices[service] == nil {
			s.slices[service] = make(map[string]*discovery.EndpointSlice)
		}
		s.slices[service][o.Name], s.serviceOf[nameOf(o)] = o, service
	case *core.Pod:
		s.pods[nameOf(o)] = o
	case *core.Node:
		s.nodes[o.Name] = o
	case *ServiceEntry:
		s.entries[nameOf(o)] = o
	case *WorkloadEntry:
		s.putWorkload(o)
	}
}

// putWorkload stores a WorkloadEntry. If it cannot be read, it keeps the spec of the last
// version, whose labels tell which owners select it.
func (s *objectSet) putWorkload(w *WorkloadEntry) {
	delete(s.unreadWorkloads, nameOf(w))
	if w.Unread != nil {
		if old := s.workloads[nameOf(w)]; old != nil {
			with := *w
			with.Spec, w = old.Spec, &with
		}
		s.unreadWorkloads[nameOf(w)] = w
	}
	s.workloads[nameOf(w)] = w
}

func (s *objectSet) remove(object runtime.Object) {
	switch o := object.(type) {
	case *core.Service:
		delete(s.services, nameOf(o))
	case *discovery.EndpointSlice:
		service := s.serviceOf[nameOf(o)]
		delete(s.serviceOf, nameOf(o))
		delete(s.slices[service], o.Name)
		if len(s.slices[service]) == 0 {
			delete(s.slices, service)
		}
	case *core.Pod:
		delete(s.pods, nameOf(o))
	case *core.Node:
		delete(s.nodes, o.Name)
	case *ServiceEntry:
		delete(s.entries, nameOf(o))
	case *WorkloadEntry:
		delete(s.workloads, nameOf(o))
		delete(s.unreadWorkloads, nameOf(o))
	}
}

func (s *objectSet) exists(o owner) bool {
	if o.isEntry {
		return s.entries[o.objectName] != nil
	}
	return s.services[o.objectName] != nil
}

// selector returns the labels by which an owner selects workloads.
func (s *objectSet) selector(o owner) map[string]string {
	if service := s.services[o.objectName]; service != nil && !o.isEntry {
		return service.Spec.Selector
	}
	if entry := s.entries[o.objectName]; entry != nil && o.isEntry {
		return entry.Spec.GetWorkloadSelector().GetLabels()
	}
	return nil
}

// maySelect reports whether an owner selects a WorkloadEntry. For an entry whose spec was
// never read it returns true for each ServiceEntry with a selector.
func (s *objectSet) maySelect(o owner, w *WorkloadEntry) bool {
	selector := s.selector(o)
	return selects(selector, labelsOf(w)) || w.Spec == nil && o.isEntry && len(selector) > 0
}

// selectedWorkloads returns the WorkloadEntries of a namespace that a selector selects, sorted
// by name.
func (s *objectSet) selectedWorkloads(namespace string, selector map[string]string) []*WorkloadEntry {
	var out []*WorkloadEntry
	if len(selector) == 0 {
		return nil
	}
	for r, w := range s.workloads {
		if r.Namespace == namespace && w.Spec != nil && selects(selector, labelsOf(w)) {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *WorkloadEntry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// workloadsOf returns the WorkloadEntries that are endpoints of a Service. As in istiod, a
// headless Service has none.
func (s *objectSet) workloadsOf(service *core.Service) []*WorkloadEntry {
	if service.Spec.ClusterIP == core.ClusterIPNone {
		return nil
	}
	return s.selectedWorkloads(service.Namespace, service.Spec.Selector)
}

// slicesOf returns the EndpointSlices of a Service, sorted by name. It returns only those of
// the first address family, so that each endpoint is there once.
func (s *objectSet) slicesOf(service *core.Service) []*discovery.EndpointSlice {
	var out []*discovery.EndpointSlice
	for _, slice := range s.slices[nameOf(service)] {
		if slice.AddressType == discovery.AddressTypeFQDN {
			continue
		}
		if f := service.Spec.IPFamilies; len(f) < 2 || string(slice.AddressType) == string(f[0]) {
			out = append(out, slice)
		}
	}
	slices.SortFunc(out, func(a, b *discovery.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// labelsOf returns the labels of a WorkloadEntry: those in its spec, which take precedence,
// and those of the object.
func labelsOf(w *WorkloadEntry) map[string]string {
	if len(w.Labels) == 0 {
		return w.Spec.GetLabels()
	}
	all := maps.Clone(w.Labels)
	maps.Copy(all, w.Spec.GetLabels())
	return all
}

// selects reports whether a selector selects an object with some labels. An empty selector
// selects nothing.
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
