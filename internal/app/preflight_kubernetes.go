package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// checkKubernetes tries whether ServiceEntries can be kept, by one that is not stored.
func checkKubernetes(where string, store kubernetesStore, namespace string) func(context.Context, *findings) {
	return func(ctx context.Context, f *findings) {
		fix := "let this user list and write files in import.directory"
		api, isAPI := store.(*kubernetes.API)
		if isAPI {
			fix = "apply deploy/kubernetes-import.yaml and istio's custom resource definitions, or write into import.directory"
			f.checkRights(ctx, api, namespace)
		}
		began := time.Now()
		all, err := store.List(ctx, namespace)
		switch {
		case errors.Is(err, registry.ErrRefused) || err != nil && !isAPI:
			f.fail("list", err, fix)
			return
		case err != nil:
			f.away("reachable", err, "check kubernetes.kubeconfig and context, and any NetworkPolicy between here and the API server")
			return
		}
		f.pass("reachable", "%s", where)
		f.pass("list", "%d ServiceEntries in namespace %s, in %s", len(all), namespace, time.Since(began).Round(time.Millisecond))
		if err := store.Try(ctx, namespace); err != nil {
			f.fail("write", err, fix)
			return
		}
		f.pass("write", "one was tried, and not stored")
	}
}

// checkRights tells which rights are missing. That nobody can be asked is told by others.
func (f *findings) checkRights(ctx context.Context, api *kubernetes.API, namespace string) {
	const check = "rights"
	switch lacking, err := api.Lacking(ctx, kubernetes.Rights(namespace)); {
	case err != nil:
	case len(lacking) > 0:
		f.fail(check, fmt.Errorf("we may not %s in namespace %s", kubernetes.Listed(lacking), namespace), "apply deploy/kubernetes-import.yaml for our account")
	default:
		f.pass(check, "%s in namespace %s", kubernetes.Listed(kubernetes.Rights(namespace)), namespace)
	}
}
