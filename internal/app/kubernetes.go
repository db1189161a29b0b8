package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// kubernetesKind is a mesh, reached through the API of its cluster.
type kubernetesKind struct{ *config.Kubernetes }

func (k kubernetesKind) abilities() abilities {
	m := k.Import
	return abilities{hosts: true, imports: &config.Import{
		Namespace: m.Namespace, Suffix: m.Suffix, VIPs: m.VIPs, ExportTo: m.ExportTo, Allow: m.Allow, Keys: "off",
	}}
}

// keptID implements kind: a mesh keeps no id.
func (kubernetesKind) keptID(*builder, string) *keptID { return nil }

// records implements kind: a source of a mesh keeps nothing for us.
func (kubernetesKind) records(*builder, string) (recordStore, error) { return nil, nil } //nolint:nilnil // see kind

// restConfig says how the API server is reached, and as whom.
func (k kubernetesKind) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.Kubeconfig
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubernetes.kubeconfig: %w; name a kubeconfig file, or run in a pod", err)
	}
	c.Timeout = k.Timeout.Std()
	return c, nil
}

// connection implements kind: the API server, or a directory.
func (k kubernetesKind) connection(b *builder, at sinkKey) (*targetConnection, error) {
	c := &kubernetesConnection{name: at.registry, where: k.Import.Directory, store: kubernetes.NewDirectory(k.Import.Directory)}
	if k.Import.Directory == "" {
		server, err := k.restConfig()
		if err != nil {
			return nil, err
		}
		if c.store, err = kubernetes.NewAPI(server, b.cfg.Owner); err != nil {
			return nil, err //nolint:wrapcheck // build names the registry
		}
		c.where = server.Host
	}
	return &targetConnection{connection: c, name: at.registry, kind: "kubernetes", lasting: true}, nil
}

// A kubernetesConnection is a store of ServiceEntries.
type kubernetesConnection struct {
	name, where string
	store       kubernetesStore
	target      atomic.Pointer[kubernetes.Target] // of the last loop, which a reload replaces
}

type kubernetesStore interface {
	kubernetes.Store
	kubernetes.Probe
}

func (*kubernetesConnection) run(ctx context.Context) error { return untilDone(ctx) }

func (*kubernetesConnection) close() {}

func (c *kubernetesConnection) state() admin.TargetState {
	t := c.target.Load()
	if t == nil {
		return admin.TargetState{Server: c.where}
	}
	s := t.State()
	out := admin.TargetState{Connected: s.Err == nil && !s.At.IsZero(), Server: c.where, Since: s.Since}
	if s.Err != nil {
		out.LastError = s.Err.Error()
	}
	return out
}

func (c *kubernetesConnection) bind(b *builder, bridges []config.Bridge, _ []use) (*boundTarget, error) {
	m := b.kind(c.name).abilities().imports
	codecs, err := b.serviceEntries(m, bridges)
	if err != nil {
		return nil, err
	}
	target := kubernetes.NewTarget(c.store, kubernetes.Options{Owner: b.cfg.Owner, Namespace: m.Namespace, VIPs: m.VIPs})
	c.target.Store(target)
	return &boundTarget{target: target, codecs: codecs, check: checkKubernetes(c, m.Namespace)}, nil
}

// checkKubernetes tries whether ServiceEntries can be kept, by one that is not stored.
func checkKubernetes(c *kubernetesConnection, namespace string) func(context.Context, *findings) {
	return func(ctx context.Context, f *findings) {
		const fix = "give the account the rights of deploy/kubernetes.yaml, and install istio's custom resource definitions"
		began := time.Now()
		all, err := c.store.List(ctx, namespace)
		if err != nil {
			f.away("reachable", err, fix)
			return
		}
		f.pass("reachable", "%s", cmp.Or(c.where, "the API server"))
		f.pass("list", "%d ServiceEntries in namespace %s, in %s", len(all), namespace, time.Since(began).Round(time.Millisecond))
		if err := c.store.Try(ctx, namespace); err != nil {
			f.fail("write", err, fix)
			return
		}
		f.pass("write", "one was tried, and not stored")
	}
}

// source implements kind.
func (kubernetesKind) source(*builder, string) (*boundSource, error) {
	return nil, errors.New("it is written only: read the mesh by a registry with istiod")
}
