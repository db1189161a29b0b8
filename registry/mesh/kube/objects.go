package kube

import (
	"cmp"
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

//nolint:gochecknoglobals // a constant in effect
var istioVersion = schema.GroupVersion{Group: "networking.istio.io", Version: "v1"}

// Object is an object of Istio.
type Object[S any] struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`

	// Spec is nil if it cannot be read. Unread is then the error.
	Spec   *S    `json:"-"`
	Unread error `json:"-"`

	Status WorkloadStatus `json:"status"` // only of a WorkloadEntry
}

// ServiceEntry is Istio's ServiceEntry.
type ServiceEntry = Object[networking.ServiceEntry]

// WorkloadEntry is Istio's WorkloadEntry.
type WorkloadEntry = Object[networking.WorkloadEntry]

// WorkloadStatus is the status of a WorkloadEntry.
type WorkloadStatus struct {
	Conditions []WorkloadCondition `json:"conditions"`
}

// WorkloadCondition is a condition of a WorkloadEntry.
type WorkloadCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// healthChecks is the annotation of a WorkloadEntry with health checks.
const healthChecks = "proxy.istio.io/health-checks-enabled"

// workloadHealth returns the health of a WorkloadEntry, as istiod determines it. An entry with
// health checks is healthy once a check succeeded. Most entries have no health checks.
func workloadHealth(w *WorkloadEntry) registry.Health {
	checked, _ := strconv.ParseBool(w.Annotations[healthChecks]) // as in istiod, an invalid value is false
	if !checked || slices.Contains(w.Status.Conditions, WorkloadCondition{Type: "Healthy", Status: "True"}) {
		return registry.HealthUnknown
	}
	return registry.Unhealthy
}

// UnmarshalJSON reads the object. It returns no error for an invalid object but sets Unread,
// so that other objects of the same list can be read.
func (o *Object[S]) UnmarshalJSON(data []byte) error {
	type plain Object[S]
	var outer struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := cmp.Or(json.Unmarshal(data, (*plain)(o)), json.Unmarshal(data, &outer)); err != nil {
		o.Unread = fmt.Errorf("the object cannot be read: %w", err)
		return nil
	}
	spec := new(S)
	if len(outer.Spec) > 0 {
		unmarshaler := any(spec).(json.Unmarshaler) //nolint:forcetypeassert // all messages of Istio implement it
		if err := unmarshaler.UnmarshalJSON(outer.Spec); err != nil {
			o.Unread = fmt.Errorf("its spec cannot be read: %w", err)
			return nil
		}
	}
	o.Spec = spec
	return nil
}

// DeepCopyObject implements runtime.Object. Objects are never changed after they are read, so
// that a shallow copy is enough.
func (o *Object[S]) DeepCopyObject() runtime.Object { c := *o; return &c }

type objectList[T any] struct {
	meta.TypeMeta `json:",inline"`
	meta.ListMeta `json:"metadata"`

	Items []T `json:"items"`
}

func (l *objectList[T]) DeepCopyObject() runtime.Object { c := *l; return &c }

// scheme returns a scheme of the kinds that are read. client-go's own scheme would link all
// kinds.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(core.SchemeGroupVersion,
		&core.Service{}, &core.ServiceList{}, &core.Pod{}, &core.PodList{}, &core.Node{}, &core.NodeList{})
	s.AddKnownTypes(discovery.SchemeGroupVersion, &discovery.EndpointSlice{}, &discovery.EndpointSliceList{})
	s.AddKnownTypeWithName(istioVersion.WithKind("ServiceEntry"), &ServiceEntry{})
	s.AddKnownTypeWithName(istioVersion.WithKind("ServiceEntryList"), &objectList[ServiceEntry]{})
	s.AddKnownTypeWithName(istioVersion.WithKind("WorkloadEntry"), &WorkloadEntry{})
	s.AddKnownTypeWithName(istioVersion.WithKind("WorkloadEntryList"), &objectList[WorkloadEntry]{})
	for _, v := range []schema.GroupVersion{core.SchemeGroupVersion, discovery.SchemeGroupVersion, istioVersion} {
		meta.AddToGroupVersion(s, v)
	}
	return s
}

// trim removes the fields of an object that are not used, which is most of it.
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
		o.Status = WorkloadStatus{}
	case *WorkloadEntry:
		r.trimMeta(&o.ObjectMeta)
	}
}

// namedPorts returns one container with all named TCP ports of a Pod, or nil if there are
// none.
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
	for i := range s.InitContainers {
		policy := s.InitContainers[i].RestartPolicy
		if policy != nil && *policy == core.ContainerRestartPolicyAlways { // a sidecar
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
