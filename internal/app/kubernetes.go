package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// kubernetesKind is a mesh, reached through the API of its cluster.
type kubernetesKind struct{ *config.Kubernetes }

func (k kubernetesKind) abilities() abilities {
	return abilities{mesh: &k.Import.Hosts, subsets: k.Source.SubsetLabel != ""}
}

// keptID implements kind: a mesh keeps no id.
func (kubernetesKind) keptID() *keptID { return nil }

// records implements kind: a source of a mesh keeps nothing for us.
func (kubernetesKind) records(*builder, string) (recordStore, error) { return nil, nil } //nolint:nilnil // see kind

// restConfig says how the API server is reached, and as whom.
func (k kubernetesKind) restConfig() (*rest.Config, error) {
	c, err := restConfig(k.Kubeconfig, k.Context)
	if err != nil {
		return nil, err
	}
	c.Timeout = k.Timeout.Std()
	c.Wrap(kube.Bound(int64(k.Limits.MaxReceive)))
	return c, nil
}

// restConfig says how the API server of a context of a file is reached, and as whom.
func restConfig(file, name string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // client-go advises a variable that no kubeconfig is read for
		err = errors.New("no cluster is named")
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes.kubeconfig: %w; name a kubeconfig file, set KUBECONFIG, or run in a pod", err)
	}
	return c, nil
}

// connection implements kind: the API server, or a directory.
func (k kubernetesKind) connection(_ *builder, at targetKey) (*targetConnection, error) {
	c := &kubernetesConnection{name: at.registry, where: k.Import.Directory}
	if k.Import.Directory == "" {
		var err error
		if c.server, err = k.restConfig(); err != nil {
			return nil, err
		}
		c.where = c.server.Host
	}
	return &targetConnection{connection: c, name: at.registry, kind: "kubernetes", lasting: true}, nil
}

// A kubernetesConnection is where ServiceEntries are kept.
type kubernetesConnection struct {
	name, where string
	server      *rest.Config                              // nil: they are kept in a directory
	last        atomic.Pointer[func() []kubernetes.State] // of the target of the last loop, which a reload replaces
}

func (*kubernetesConnection) run(ctx context.Context) error { return untilDone(ctx) }

func (*kubernetesConnection) close() {}

func (c *kubernetesConnection) state() admin.TargetState {
	out := admin.TargetState{Server: c.where}
	states := c.last.Load()
	if states == nil {
		return out
	}
	for _, s := range (*states)() {
		out.Connected = out.Connected || s.Err == nil && !s.At.IsZero()
		if out.Since.Before(s.Since) {
			out.Since = s.Since
		}
		if s.Err != nil {
			out.LastError = s.Err.Error()
		}
	}
	return out
}

func (c *kubernetesConnection) bind(b *builder, bridges []config.Bridge, _ []formatUse) (*boundTarget, error) {
	m, label := meshIn(b.cfg, c.name), b.cfg.Registries[c.name].Kubernetes.Import.SubsetLabel
	codecs, err := serviceEntries(b.cfg, m, label, bridges)
	if err != nil {
		return nil, err
	}
	o := kubernetes.Options{Owner: b.cfg.Owner, Namespace: m.Namespace, VIPs: m.VIPs, Rules: label != "" || c.server == nil}
	if b.adopted != nil {
		o.Takes = b.adopted.has
	}
	if c.server == nil {
		store := kubernetes.NewDirectory(c.where)
		target := kubernetes.NewTarget(store, o)
		c.states(target.State)
		return &boundTarget{target: target, codecs: codecs, check: checkKubernetes(c.where, store, o)}, nil
	}
	store, err := kubernetes.NewAPI(c.server, b.cfg.Owner)
	if err != nil {
		return nil, err //nolint:wrapcheck // build names the registry
	}
	target := kubernetes.NewWatchedTarget(store, o)
	c.states(target.State, target.WatchState)
	return &boundTarget{target: target, codecs: codecs, beside: target.Run, check: checkKubernetes(c.where, store, o)}, nil
}

// states notes what tells how the connection stands.
func (c *kubernetesConnection) states(all ...func() kubernetes.State) {
	states := func() []kubernetes.State {
		var out []kubernetes.State
		for _, f := range all {
			out = append(out, f())
		}
		return out
	}
	c.last.Store(&states)
}

// kubernetesStore is what is checked of where ServiceEntries are kept.
type kubernetesStore interface {
	kubernetes.Storage
	kubernetes.Probe
}
