package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Right is a permission of RBAC: one verb for one kind of object in a namespace.
type Right struct {
	Group, Resource, Verb, Namespace string
}

// Rights returns the rights that a target over an API requires, except those for records.
// Server-side apply requires create and patch.
func Rights(o Options) []Right {
	var all []Right
	for _, kind := range o.Kinds() {
		all = append(all, o.rights(kind, "list", "get", "watch", "create", "patch", "delete")...)
	}
	return all
}

// RecordRights returns the rights that records require in addition to Rights.
func RecordRights(o Options) []Right {
	return o.rights(configMap, "get", "create", "patch")
}

func (o Options) rights(kind string, verbs ...string) []Right {
	var all []Right
	for _, verb := range verbs {
		r := resourceOf(kind)
		all = append(all, Right{Group: r.Group, Resource: r.Resource, Verb: verb, Namespace: o.Namespace})
	}
	return all
}

// Lacking returns those of the rights that our account does not have. Every account may
// review its own rights.
func (a *API) Lacking(ctx context.Context, rights []Right) ([]Right, error) {
	var lacking []Right
	for _, r := range rights {
		review := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"spec": map[string]any{"resourceAttributes": map[string]any{
				"group": r.Group, "resource": r.Resource, "verb": r.Verb, "namespace": r.Namespace,
			}},
		}}
		reviews := schema.GroupVersionResource{
			Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews",
		}
		answer, err := a.client.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("review our rights: %w", err)
		}
		if allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed"); err != nil || !allowed {
			lacking = append(lacking, r)
		}
	}
	return lacking, nil
}

// Listed formats rights for an operator: for each kind of object its verbs.
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

// explain wraps an error of the API server. It is a registry.ErrRefused with a remedy if a
// retry cannot help, and a registry.ErrConflict if the object changed.
func explain(err error, verb string, of objectRef) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err) && len(conflictingManagers(err)) > 0:
		return fmt.Errorf("%w: fields of the %s are managed by %s: remove them there, or leave the service out",
			registry.ErrRefused, of.kind, strings.Join(conflictingManagers(err), ", "))
	case errors.Is(err, registry.ErrConflict):
		return err
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), requiresVersion(err):
		return fmt.Errorf("%w: %w", registry.ErrConflict, err)
	case apierrors.IsForbidden(err):
		return explainForbidden(err, verb, of)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the API server rejects the credentials: check kubeconfig: %w", registry.ErrRefused, err)
	case apierrors.IsNotFound(err) && strings.Contains(err.Error(), "namespaces"):
		return fmt.Errorf("%w: create namespace %s: %w", registry.ErrRefused, of.namespace, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: install istio's custom resource definitions, as istio/base does: %w", registry.ErrRefused, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	return fmt.Errorf("%s in namespace %s: %w", verb, of.namespace, err)
}

// explainForbidden is explain for a request that RBAC, a quota or an admission check denied.
func explainForbidden(err error, verb string, of objectRef) error {
	if strings.Contains(err.Error(), "being terminated") {
		return fmt.Errorf("%w: namespace %s is being deleted: %w", registry.ErrRefused, of.namespace, err)
	}
	if strings.Contains(err.Error(), "exceeded quota") {
		return fmt.Errorf("%w: raise the ResourceQuota of namespace %s, or leave services out: %w",
			registry.ErrRefused, of.namespace, err)
	}
	isByWebhook := strings.Contains(err.Error(), "denied the request")
	if isByPolicy := strings.Contains(err.Error(), "denied request"); isByWebhook || isByPolicy {
		return fmt.Errorf("%w: change the admission webhook or policy that denies it, or leave the service out: %w",
			registry.ErrRefused, err)
	}
	return fmt.Errorf("%w: allow %s for %s in namespace %s: %w",
		registry.ErrRefused, verb, resourceOf(of.kind).GroupResource(), of.namespace, err)
}

// requiresVersion reports whether an apply without a valid version failed because the object
// exists.
func requiresVersion(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	isVersion := func(c metav1.StatusCause) bool { return c.Field == "metadata.resourceVersion" }
	return ok && apierrors.IsInvalid(err) && status.ErrStatus.Details != nil &&
		slices.ContainsFunc(status.ErrStatus.Details.Causes, isVersion)
}

// conflictingManagers returns the other managers of the fields that an apply would change.
func conflictingManagers(err error) []string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return nil
	}
	var all []string
	for _, cause := range status.ErrStatus.Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			all = append(all, cause.Message+" ("+cause.Field+")")
		}
	}
	return all
}
