package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
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

// istiodAddress is where istiod is in a cluster in which it was installed as its
// documents say.
const istiodAddress = "istiod.istio-system.svc:15012"

// tryWay is how long one other way may take to answer.
const tryWay = 3 * time.Second

// checkWays returns what tells which ways into a mesh would work from here beside
// the one that is configured. None of them is asked for, so that none fails.
func checkWays(r config.Registry) func(context.Context, *findings) {
	return func(ctx context.Context, f *findings) {
		ctx, cancel := context.WithTimeout(ctx, tryWay)
		defer cancel()
		if r.Kubernetes == nil || r.Kubernetes.Import.Directory != "" {
			namespace := kindOf(r).abilities().imports.Namespace
			f.noteAPI(ctx, cmp.Or(r.Kubernetes, &config.Kubernetes{Timeout: config.Duration(tryWay)}), namespace)
		}
		if r.Kubernetes != nil {
			f.noteIstiod(ctx)
		}
	}
}

// noteAPI tells whether ServiceEntries could be written by the Kubernetes API. A
// kubeconfig that nobody named is left alone: it may ask for a login.
func (f *findings) noteAPI(ctx context.Context, k *config.Kubernetes, namespace string) {
	const check = "way: ServiceEntries by the Kubernetes API"
	if k.Kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" && os.Getenv("KUBECONFIG") == "" {
		f.note(check, "not from here: this is no pod, and no kubeconfig is named", "run in a pod, or set KUBECONFIG")
		return
	}
	server, err := kubernetesKind{k}.restConfig()
	if err != nil {
		f.note(check, "not from here: "+err.Error(), "name a kubeconfig file")
		return
	}
	api, err := kubernetes.NewAPI(server, "preflight")
	if err != nil {
		f.note(check, "not from here: "+err.Error(), "name another kubeconfig file")
		return
	}
	switch lacking, err := api.Lacking(ctx, kubernetes.Rights(namespace)); {
	case err != nil:
		f.note(check, "not from here: "+err.Error(), "let us reach "+server.Host)
	case len(lacking) > 0:
		f.note(check, fmt.Sprintf("not yet: at %s we may not %s in namespace %s", server.Host, kubernetes.Listed(lacking), namespace), "apply deploy/kubernetes-import.yaml for our account")
	default:
		if _, err := api.List(ctx, namespace); err != nil {
			f.note(check, "not yet: "+err.Error(), "install istio's custom resource definitions")
			return
		}
		f.note(check, "works at "+server.Host+": a registry with kubernetes in place of istiod", "")
	}
}

// noteIstiod tells whether istiod can be reached, where it is in most clusters.
func (f *findings) noteIstiod(ctx context.Context) {
	const check = "way: istiod reads the bridge"
	if err := reach(ctx, istiodAddress); err != nil {
		f.note(check, "istiod is not at "+istiodAddress+" from here: "+err.Error(), "")
		return
	}
	f.note(check, istiodAddress+" is reachable: a registry with istiod in place of kubernetes, and listen, if istiod's configSources may be changed", "")
}
