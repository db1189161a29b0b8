package generator

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// objectKind is a kind of object that is requested.
type objectKind string

// The kinds that are requested. istiod sends a Kubernetes Service as a ServiceEntry
// `NAMESPACE/synthetic-NAME` without annotations and labels (istio's ServiceToServiceEntry).
const (
	serviceEntry  objectKind = "ServiceEntry"
	workloadEntry objectKind = "WorkloadEntry"
)

func objectKinds() []objectKind { return []objectKind{serviceEntry, workloadEntry} }

// urls returns the type URLs of a kind, the newest first: v1 since istiod 1.24, v1alpha3
// before. istiod answers an unknown type URL with no resources.
func (k objectKind) urls() []string {
	return []string{"networking.istio.io/v1/" + string(k), "networking.istio.io/v1alpha3/" + string(k)}
}

// resourceURL is the type URL of the wrapper around each object.
const resourceURL = "type.googleapis.com/istio.mcp.v1alpha1.Resource"

// resourcesByKind has everything that istiod sent in one reading, by kind.
type resourcesByKind map[objectKind][]*anypb.Any

func (r resourcesByKind) size() int64 {
	var n int64
	for _, all := range r {
		for _, resource := range all {
			n += int64(len(resource.GetValue()))
		}
	}
	return n
}

// objectID identifies an object.
type objectID struct {
	kind            objectKind
	namespace, name string
}

// apiObject is an object whose spec is not decoded yet.
type apiObject struct {
	objectID
	sum  [sha256.Size]byte // hash of the whole resource
	meta meta.ObjectMeta
	body *anypb.Any
}

// parseObject decodes the metadata of an object. It keeps only the annotation with service
// keys.
func parseObject(k objectKind, wire *anypb.Any, keys kube.Keys) (apiObject, error) {
	if wire.GetTypeUrl() != resourceURL {
		return apiObject{}, fmt.Errorf("%s of the unexpected type %s", k, naming.Quote(wire.GetTypeUrl()))
	}
	var resource mcpv1.Resource
	if err := proto.Unmarshal(wire.GetValue(), &resource); err != nil {
		return apiObject{}, fmt.Errorf("decode a %s: %w", k, err)
	}
	m := resource.GetMetadata()
	namespace, name, ok := strings.Cut(m.GetName(), "/")
	if !ok || namespace == "" || name == "" {
		return apiObject{}, fmt.Errorf("%s %s: expected a name of the form NAMESPACE/NAME", k, naming.Quote(m.GetName()))
	}
	o := apiObject{objectID: objectID{k, namespace, name}, sum: sha256.Sum256(wire.GetValue()), body: resource.GetBody()}
	o.meta = meta.ObjectMeta{
		Namespace: namespace, Name: name, Labels: m.GetLabels(),
		CreationTimestamp: meta.NewTime(m.GetCreateTime().AsTime()),
	}
	if text, ok := m.GetAnnotations()[keys.Annotation]; ok {
		o.meta.Annotations = map[string]string{keys.Annotation: text}
	}
	return o, nil
}

// decodeSpec returns the object for package kube, with only the fields from which service
// keys are derived.
func (o *apiObject) decodeSpec() (runtime.Object, error) {
	var entry networking.ServiceEntry
	var workload networking.WorkloadEntry
	spec := map[objectKind]proto.Message{serviceEntry: &entry, workloadEntry: &workload}[o.kind]
	if err := proto.Unmarshal(o.body.GetValue(), spec); err != nil {
		return nil, fmt.Errorf("decode %s %s/%s: %w", o.kind, o.namespace, o.name, err)
	}
	if o.kind == serviceEntry {
		entry.Endpoints = nil
		return &kube.ServiceEntry{ObjectMeta: o.meta, Spec: &entry}, nil
	}
	return &kube.WorkloadEntry{ObjectMeta: o.meta, Spec: &networking.WorkloadEntry{Labels: workload.GetLabels()}}, nil
}
