package kubernetes

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Right is what RBAC may allow of one kind of object in a namespace.
type Right struct {
	Group, Resource, Verb, Namespace string
}

// Rights returns all that an API asks for as the Store of a target: to list, to get and to
// watch objects, to apply them, which is to create and to patch, and to delete.
func Rights(o Options) []Right {
	var all []Right
	for _, kind := range o.Kinds() {
		at := resource(kind)
		for _, verb := range []string{"list", "get", "watch", "create", "patch", "delete"} {
			all = append(all, Right{Group: at.Group, Resource: at.Resource, Verb: verb, Namespace: o.Namespace})
		}
	}
	return all
}

// Lacking returns which of some rights we do not have. Every account may ask that.
func (a *API) Lacking(ctx context.Context, rights []Right) ([]Right, error) {
	var lacking []Right
	for _, r := range rights {
		review := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"spec": map[string]any{"resourceAttributes": map[string]any{
				"group": r.Group, "resource": r.Resource, "verb": r.Verb, "namespace": r.Namespace,
			}},
		}}
		reviews := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
		answer, err := a.client.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("ask for our rights: %w", err)
		}
		if allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed"); err != nil || !allowed {
			lacking = append(lacking, r)
		}
	}
	return lacking, nil
}

// Listed returns rights as an operator reads them: verbs by kind of object.
func Listed(rights []Right) string {
	var kinds []string
	verbs := make(map[string][]string)
	for _, r := range rights {
		kind := schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
		if verbs[kind] == nil {
			kinds = append(kinds, kind)
		}
		verbs[kind] = append(verbs[kind], r.Verb)
	}
	for i, kind := range kinds {
		kinds[i] = strings.Join(verbs[kind], ", ") + " " + kind
	}
	return strings.Join(kinds, "; ")
}
