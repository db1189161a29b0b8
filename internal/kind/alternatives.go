package kind

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// istiodAddress is the address of istiod after an installation with default names.
const istiodAddress = "istiod.istio-system.svc:15012"

// alternativeTimeout is how long an alternative may take to answer.
const alternativeTimeout = 3 * time.Second

// CheckOtherWriting returns a check of other ways to write entries into a mesh from here.
// The configuration uses none of them, so the check never fails.
func CheckOtherWriting(r config.Registry) func(context.Context, *preflight.Findings) {
	return func(ctx context.Context, f *preflight.Findings) {
		ctx, cancel := context.WithTimeout(ctx, alternativeTimeout)
		defer cancel()
		if r.Kubernetes == nil || r.Kubernetes.Import.Directory != "" {
			change := "use a registry with kubernetes instead of istiod"
			if r.Kubernetes != nil {
				change = "leave import.directory out"
			}
			namespace := r.Settings().Mesh.Namespace
			k := cmp.Or(r.Kubernetes, &config.Kubernetes{Timeout: config.Duration(alternativeTimeout)})
			informOfAPI(ctx, f, k, namespace, change)
		}
		if r.Kubernetes != nil {
			informOfIstiod(ctx, f, "istiod reads the bridge",
				"if you may change istiod's configSources, use a registry with istiod instead of kubernetes, and set listen")
		}
	}
}

// keySources returns the sources of the service keys of a mesh, as mapping.from names them.
func keySources() []string { return []string{"debug-xds", "debug-http", "api", "kubernetes"} }

// CheckOtherReading returns a check of other ways to read a mesh from here. The
// configuration uses none of them, so the check never fails.
func CheckOtherReading(r config.Registry) func(context.Context, *preflight.Findings) {
	return func(ctx context.Context, f *preflight.Findings) {
		ctx, cancel := context.WithTimeout(ctx, alternativeTimeout)
		defer cancel()
		if r.Istiod == nil {
			informOfIstiod(ctx, f, "endpoints by istiod", "use a registry with istiod instead of kubernetes")
			return
		}
		var trying sync.WaitGroup
		sources := keySources()
		found := make([]preflight.Findings, len(sources))
		for i, from := range sources {
			if from != mappingFrom(r.Istiod) {
				trying.Go(func() { informOfKeys(ctx, &found[i], *r.Istiod, from) })
			}
		}
		trying.Wait()
		for _, n := range found {
			f.Merge(n)
		}
	}
}

// informOfKeys reports whether the service keys of a mesh could be read from another
// source, by reading them once.
func informOfKeys(ctx context.Context, f *preflight.Findings, m config.Istiod, from string) {
	check := "alternative: service keys by " + from
	switch {
	case from == "kubernetes" && !isClusterSet(m.Mapping.Kubernetes.Kubeconfig):
		f.Inform(check, notInCluster, nameCluster)
		return
	case from == "debug-xds" && m.TLS == nil:
		f.Inform(check, "not yet: istiod answers only over TLS", "set istiod.tls, and port 15012 in istiod.address")
		return
	}
	m.Mapping.From = from
	if from != "kubernetes" { // one replica is enough to see whether istiod answers
		m.Mapping.Addresses = []string{m.Address}
		if host, _, err := net.SplitHostPort(m.Address); err == nil && from == "debug-http" {
			m.Mapping.Addresses = []string{host}
		}
	}
	read, err := readKeys(ctx, &m)
	f.Inform(check, keysRead(read, err, from), "")
}

func keysRead(read debug.Snapshot, err error, from string) string {
	switch {
	case err != nil:
		return "not from here: " + err.Error()
	case !read.Complete:
		return "not from here: no answer within " + alternativeTimeout.String()
	case read.Unread != nil:
		return fmt.Sprintf("works in part, with %s: %v", registry.Counted(read.Mapping.Len(), "key", "keys"), read.Unread)
	case read.Mapping.Len() == 0:
		return "answers, but has no service key"
	}
	return fmt.Sprintf("works, with %s: set mapping.from: %s", registry.Counted(read.Mapping.Len(), "key", "keys"), from)
}

// readKeys reads the service keys of a mesh until they are complete, reading fails, or ctx
// ends.
func readKeys(ctx context.Context, m *config.Istiod) (last debug.Snapshot, err error) {
	o := mesh.Options{Log: slog.New(slog.DiscardHandler)}
	if o.ADS, err = adsOptions(m); err != nil {
		return last, err
	}
	if err := mapping(m, &o, new(debug.Endpoints), nil); err != nil {
		return last, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = o.Mapping.Run(ctx, func(s debug.Snapshot) {
		if last = s; s.Complete || s.Err != nil {
			cancel()
		}
	})
	return last, cmp.Or(err, last.Err)
}

const (
	notInCluster = "not from here: the process is not in a pod, and no kubeconfig is set"
	nameCluster  = "run in a pod, or set KUBECONFIG"
)

// isClusterSet reports whether the settings or the environment select a cluster. The
// default kubeconfig is never used: it may require a login.
func isClusterSet(kubeconfig string) bool {
	return kubeconfig != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "" || os.Getenv("KUBECONFIG") != ""
}

// informOfAPI reports whether ServiceEntries could be written by the Kubernetes API. The
// change is what the operator has to configure for that.
func informOfAPI(ctx context.Context, f *preflight.Findings, k *config.Kubernetes, namespace, change string) {
	const check = "alternative: ServiceEntries by the Kubernetes API"
	if !isClusterSet(k.Kubeconfig) {
		f.Inform(check, notInCluster, nameCluster)
		return
	}
	server, err := kubernetesKind{k}.restConfig()
	if err != nil {
		f.Inform(check, "not from here: "+err.Error(), "set a kubeconfig file")
		return
	}
	api, err := kubernetes.NewAPI(server, "preflight")
	if err != nil {
		f.Inform(check, "not from here: "+err.Error(), "set another kubeconfig file")
		return
	}
	o := kubernetes.Options{Namespace: namespace}
	switch lacking, err := api.Lacking(ctx, slices.Concat(kubernetes.Rights(o), kubernetes.RecordRights(o))); {
	case err != nil:
		f.Inform(check, "not from here: "+err.Error(), "make "+server.Host+" reachable from here")
	case len(lacking) > 0:
		f.Inform(check, "not yet: at "+server.Host+", "+lackingRights(lacking, namespace),
			"apply deploy/kubernetes-import.yaml for the bridge's account")
	default:
		if _, err := api.List(ctx, serviceentry.ObjectKind, namespace); err != nil {
			f.Inform(check, "not yet: "+err.Error(), "install istio's custom resource definitions")
			return
		}
		f.Inform(check, "works at "+server.Host+": "+change, "")
	}
}

// informOfIstiod reports whether istiod is reachable at its usual address.
func informOfIstiod(ctx context.Context, f *preflight.Findings, what, change string) {
	check := "alternative: " + what
	if err := dial(ctx, istiodAddress); err != nil {
		f.Inform(check, "istiod is not at "+istiodAddress+" from here: "+err.Error(), "")
		return
	}
	f.Inform(check, istiodAddress+" is reachable: "+change, "")
}
