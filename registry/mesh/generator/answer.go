package generator

import (
	"crypto/sha256"
	"errors"
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

// kind is a kind of object that is asked for.
type kind string

// The kinds. A Service of Kubernetes is told as a ServiceEntry
// `NAMESPACE/synthetic-NAME`, without annotations and labels (istio's
// ServiceToServiceEntry).
const (
	serviceEntry  kind = "ServiceEntry"
	workloadEntry kind = "WorkloadEntry"
)

func kinds() []kind { return []kind{serviceEntry, workloadEntry} }

// urls returns the names that versions of istiod know a kind by, the newest first: v1
// since 1.24, v1alpha3 before. istiod answers another with nothing.
func (k kind) urls() []string {
	return []string{"networking.istio.io/v1/" + string(k), "networking.istio.io/v1alpha3/" + string(k)}
}

// resourceURL is the type of each resource of an answer.
const resourceURL = "type.googleapis.com/istio.mcp.v1alpha1.Resource"

// answer is everything that istiod tells, by kind.
type answer map[kind][]*anypb.Any

// id is what an object is told from others by.
type id struct {
	kind            kind
	namespace, name string
}

// told is one object of an answer whose spec is not read yet.
type told struct {
	id
	sum  [sha256.Size]byte // of all that is told of it
	meta meta.ObjectMeta
	body *anypb.Any
}

// parse reads what an object is called and what it carries. Of annotations the one of
// service keys alone is kept.
func parse(k kind, wire *anypb.Any, keys kube.Keys) (told, error) {
	if wire.GetTypeUrl() != resourceURL {
		return told{}, fmt.Errorf("a %s is told as %s", k, naming.Quote(wire.GetTypeUrl()))
	}
	var resource mcpv1.Resource
	if err := proto.Unmarshal(wire.GetValue(), &resource); err != nil {
		return told{}, fmt.Errorf("a %s cannot be read: %w", k, err)
	}
	m := resource.GetMetadata()
	namespace, name, ok := strings.Cut(m.GetName(), "/")
	if !ok || namespace == "" || name == "" {
		return told{}, fmt.Errorf("a %s is called %s, and not NAMESPACE/NAME", k, naming.Quote(m.GetName()))
	}
	t := told{id: id{k, namespace, name}, sum: sha256.Sum256(wire.GetValue()), body: resource.GetBody()}
	t.meta = meta.ObjectMeta{Namespace: namespace, Name: name, Labels: m.GetLabels(), CreationTimestamp: meta.NewTime(m.GetCreateTime().AsTime())}
	if text, ok := m.GetAnnotations()[keys.Annotation]; ok {
		t.meta.Annotations = map[string]string{keys.Annotation: text}
	}
	return t, nil
}

// object reads the spec as far as service keys follow from it: endpoints do not
// count.
func (t *told) object() (runtime.Object, error) {
	if t.kind == serviceEntry {
		var spec networking.ServiceEntry
		if err := proto.Unmarshal(t.body.GetValue(), &spec); err != nil {
			return nil, t.unread(err)
		}
		spec.Endpoints = nil
		return &kube.ServiceEntry{ObjectMeta: t.meta, Spec: &spec}, nil
	}
	var spec networking.WorkloadEntry
	if err := proto.Unmarshal(t.body.GetValue(), &spec); err != nil {
		return nil, t.unread(err)
	}
	return &kube.WorkloadEntry{ObjectMeta: t.meta, Spec: &networking.WorkloadEntry{Labels: spec.GetLabels()}}, nil
}

func (t *told) unread(err error) error {
	return fmt.Errorf("%s %s/%s cannot be read: %w", t.kind, t.namespace, t.name, err)
}

// named returns an object that has a name and no more.
func (i id) named() runtime.Object {
	m := meta.ObjectMeta{Namespace: i.namespace, Name: i.name}
	if i.kind == serviceEntry {
		return &kube.ServiceEntry{ObjectMeta: m}
	}
	return &kube.WorkloadEntry{ObjectMeta: m}
}

var errEmptied = errors.New("istiod tells of no ServiceEntry any more, which is no proof that they are gone")
