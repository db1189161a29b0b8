package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// checkKubernetes tries whether objects can be kept, by one of each kind that is not stored.
func checkKubernetes(where string, store kubernetesStore, o kubernetes.Options) func(context.Context, *findings) {
	return func(ctx context.Context, f *findings) {
		fix := "let this user list and write files in import.directory"
		api, isAPI := store.(*kubernetes.API)
		if isAPI {
			fix = "install istio's custom resource definitions, " + applyManifests(o) + ", or write into import.directory"
			checkRights(ctx, f, api, o)
		}
		began := time.Now()
		counts := make([]string, 0, len(o.Kinds()))
		unread := make(map[string]bool)
		for _, kind := range o.Kinds() {
			all, err := store.List(ctx, kind, o.Namespace)
			switch {
			case errors.Is(err, registry.ErrRefused) || err != nil && !isAPI:
				f.fail("list", err, fix)
				return
			case err != nil:
				f.away("reachable", err, "check kubernetes.kubeconfig and context, and any NetworkPolicy between here and the API server")
				return
			}
			n := 0
			for _, object := range all {
				if object.Kind == kind {
					n++
				} else {
					unread[object.Metadata.Name] = true
				}
			}
			counts = append(counts, fmt.Sprintf("%d %s", n, kubernetes.Plural(kind)))
		}
		f.pass("reachable", "%s", where)
		f.pass("list", "%s in namespace %s, in %s", strings.Join(counts, " and "), o.Namespace, time.Since(began).Round(time.Millisecond))
		if len(unread) > 0 {
			f.warn("list", fmt.Sprintf("%d cannot be read, such as %s", len(unread), slices.Min(slices.Collect(maps.Keys(unread)))),
				"repair or delete them: a host in them may be written twice, and istiod may read nothing new of a directory")
		}
		for _, kind := range o.Kinds() {
			if err := store.Try(ctx, kind, o.Namespace); err != nil {
				f.fail("write", err, fix)
				return
			}
		}
		f.pass("write", "one was tried, and not stored")
	}
}

// manifestNamespace is the namespace in our manifests.
const manifestNamespace = "xds-bridge"

// applyManifests says which of our manifests give the rights of a target.
func applyManifests(o kubernetes.Options) string {
	files := "deploy/kubernetes-import.yaml"
	if o.Rules {
		files += " and deploy/kubernetes-import-subsets.yaml"
	}
	if o.Namespace != manifestNamespace {
		files += ", with namespace " + o.Namespace + " in place of " + manifestNamespace + ","
	}
	return "apply " + files + " for our account"
}

// checkRights reports which rights are missing. Other checks report an API server that
// does not answer.
func checkRights(ctx context.Context, f *findings, api *kubernetes.API, o kubernetes.Options) {
	const check = "rights"
	switch lacking, err := api.Lacking(ctx, kubernetes.Rights(o)); {
	case err != nil:
	case len(lacking) > 0:
		f.fail(check, fmt.Errorf("we may not %s in namespace %s", kubernetes.Listed(lacking), o.Namespace), applyManifests(o))
	default:
		f.pass(check, "%s in namespace %s", kubernetes.Listed(kubernetes.Rights(o)), o.Namespace)
	}
	if lacking, err := api.Lacking(ctx, kubernetes.RecordRights(o)); err == nil && len(lacking) > 0 {
		f.warn("records", fmt.Sprintf("a restart will forget what was lost and decided: we may not %s in namespace %s", kubernetes.Listed(lacking), o.Namespace), applyManifests(o))
	}
}
