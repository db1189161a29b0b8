package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xds-bridge/xds-bridge/registry"
)

var istioVersion = schema.GroupVersion{Group: "networking.istio.io", Version: "v1"} //nolint:gochecknoglobals // a constant in effect

// ServiceEntry is Istio's object. Spec is nil if it cannot be read, and Unread why.
type ServiceEntry struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`

	Spec   *networking.ServiceEntry `json:"-"`
	Unread error                    `json:"-"`
}

// WorkloadEntry is Istio's object. Spec is nil if it cannot be read, and Unread why.
type WorkloadEntry struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`

	Spec   *networking.WorkloadEntry `json:"-"`
	Unread error                     `json:"-"`
	Status WorkloadStatus            `json:"status"`
}

// WorkloadStatus is the status of a WorkloadEntry.
type WorkloadStatus struct {
	Conditions []WorkloadCondition `json:"conditions"`
}

// WorkloadCondition is one of WorkloadStatus.
type WorkloadCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// healthChecks is the annotation of a WorkloadEntry whose health istiod checks.
const healthChecks = "proxy.istio.io/health-checks-enabled"

// health returns the health that istiod uses: a WorkloadEntry with health checks is
// healthy once a check succeeded. Most entries have none.
func (w *WorkloadEntry) health() registry.Health {
	checked, _ := strconv.ParseBool(w.Annotations[healthChecks]) // an invalid value is false for istiod, too
	if !checked || slices.Contains(w.Status.Conditions, WorkloadCondition{Type: "Healthy", Status: "True"}) {
		return registry.HealthUnknown
	}
	return registry.Unhealthy
}

// UnmarshalJSON reads the object. An invalid spec concerns this object alone, and not
// the list that it is in.
func (s *ServiceEntry) UnmarshalJSON(data []byte) error {
	type plain ServiceEntry
	var spec networking.ServiceEntry
	ok, err := withSpec(data, (*plain)(s), &spec)
	if s.Unread = err; ok {
		s.Spec = &spec
	}
	return nil
}

// UnmarshalJSON reads the object, as that of ServiceEntry does.
func (w *WorkloadEntry) UnmarshalJSON(data []byte) error {
	type plain WorkloadEntry
	var spec networking.WorkloadEntry
	ok, err := withSpec(data, (*plain)(w), &spec)
	if w.Unread = err; ok {
		w.Spec = &spec
	}
	return nil
}

func withSpec(data []byte, object any, spec json.Unmarshaler) (bool, error) {
	if err := json.Unmarshal(data, object); err != nil {
		return false, fmt.Errorf("the object cannot be read: %w", err)
	}
	var outer struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(data, &outer); err != nil {
		return false, fmt.Errorf("the object cannot be read: %w", err)
	}
	if len(outer.Spec) == 0 {
		return true, nil
	}
	if err := spec.UnmarshalJSON(outer.Spec); err != nil {
		return false, fmt.Errorf("its spec cannot be read: %w", err)
	}
	return true, nil
}

// DeepCopyObject implements runtime.Object. Objects are never written once read, so
// that a shallow copy is enough.
func (s *ServiceEntry) DeepCopyObject() runtime.Object { c := *s; return &c }

// DeepCopyObject implements runtime.Object, as that of ServiceEntry does.
func (w *WorkloadEntry) DeepCopyObject() runtime.Object { c := *w; return &c }

type list[T any] struct {
	meta.TypeMeta `json:",inline"`
	meta.ListMeta `json:"metadata"`

	Items []T `json:"items"`
}

func (l *list[T]) DeepCopyObject() runtime.Object { c := *l; return &c }

// scheme has the kinds that are read, and links no others.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(core.SchemeGroupVersion, &core.Service{}, &core.ServiceList{}, &core.Pod{}, &core.PodList{}, &core.Node{}, &core.NodeList{})
	s.AddKnownTypes(discovery.SchemeGroupVersion, &discovery.EndpointSlice{}, &discovery.EndpointSliceList{})
	s.AddKnownTypeWithName(istioVersion.WithKind("ServiceEntry"), &ServiceEntry{})
	s.AddKnownTypeWithName(istioVersion.WithKind("ServiceEntryList"), &list[ServiceEntry]{})
	s.AddKnownTypeWithName(istioVersion.WithKind("WorkloadEntry"), &WorkloadEntry{})
	s.AddKnownTypeWithName(istioVersion.WithKind("WorkloadEntryList"), &list[WorkloadEntry]{})
	for _, v := range []schema.GroupVersion{core.SchemeGroupVersion, discovery.SchemeGroupVersion, istioVersion} {
		meta.AddToGroupVersion(s, v)
	}
	return s
}

// trim removes the fields of an object that are not used, which are most.
func (r *Rules) trim(object runtime.Object) {
	switch o := object.(type) {
	case *core.Service:
		r.trimMeta(&o.ObjectMeta)
		o.Status = core.ServiceStatus{}
	case *discovery.EndpointSlice:
		r.trimMeta(&o.ObjectMeta)
	case *core.Pod:
		r.trimMeta(&o.ObjectMeta)
		o.Spec = core.PodSpec{NodeName: o.Spec.NodeName, Containers: namedPorts(&o.Spec)}
		status := core.PodStatus{Phase: o.Status.Phase, PodIP: o.Status.PodIP}
		for _, c := range o.Status.Conditions {
			if c.Type == core.PodReady {
				status.Conditions = []core.PodCondition{{Type: c.Type, Status: c.Status}}
			}
		}
		o.Status = status
	case *core.Node:
		r.trimMeta(&o.ObjectMeta)
		o.Spec, o.Status = core.NodeSpec{}, core.NodeStatus{}
	case *ServiceEntry:
		r.trimMeta(&o.ObjectMeta)
	case *WorkloadEntry:
		r.trimMeta(&o.ObjectMeta)
	}
}

// namedPorts returns the named ports of TCP, as those of one container, if there are
// any.
func namedPorts(s *core.PodSpec) []core.Container {
	var ports []core.ContainerPort
	add := func(c *core.Container) {
		for _, p := range c.Ports {
			if p.Name != "" && (p.Protocol == "" || p.Protocol == core.ProtocolTCP) {
				ports = append(ports, core.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort})
			}
		}
	}
	for i := range s.Containers {
		add(&s.Containers[i])
	}
	for i := range s.InitContainers { // those that are restarted are sidecars
		if policy := s.InitContainers[i].RestartPolicy; policy != nil && *policy == core.ContainerRestartPolicyAlways {
			add(&s.InitContainers[i])
		}
	}
	if len(ports) == 0 {
		return nil
	}
	return []core.Container{{Ports: ports}}
}

func (r *Rules) trimMeta(m *meta.ObjectMeta) {
	kept := meta.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, name := range []string{r.Keys.Annotation, exportTo, healthChecks} {
		if v, ok := m.Annotations[name]; ok {
			if kept.Annotations == nil {
				kept.Annotations = make(map[string]string)
			}
			kept.Annotations[name] = v
		}
	}
	*m = kept
}
