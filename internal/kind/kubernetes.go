package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubelist"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// kubernetesKind is a mesh that the bridge accesses through the API of its cluster.
type kubernetesKind struct{ *config.Kubernetes }

func (kubernetesKind) Title() string { return "kubernetes" }

func (kubernetesKind) Facilities() Facilities { return Facilities{} }

// restConfig returns the address and the credentials of the API server.
func (k kubernetesKind) restConfig() (*rest.Config, error) {
	c, err := restConfig(k.Kubeconfig, k.Context)
	if err != nil {
		return nil, err
	}
	c.Timeout = k.Timeout.Std()
	c.Wrap(kubelist.Bound(int64(k.Limits.MaxReceive)))
	return c, nil
}

// restConfig returns the address and the credentials of the API server in a context of a
// kubeconfig file.
func restConfig(file, contextName string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	overrides := &clientcmd.ConfigOverrides{CurrentContext: contextName}
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // the error of client-go suggests a variable that does not help
		err = errors.New("no cluster is set")
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes.kubeconfig: %w; set a kubeconfig file, set KUBECONFIG, or run in a pod", err)
	}
	return c, nil
}

// Connection implements Kind. The connection leads to the API server, or to a directory.
func (k kubernetesKind) Connection(_ *Env, at config.TargetKey) (*Connection, error) {
	c := &kubernetesConnection{name: at.Registry, where: k.Import.Directory}
	if k.Import.Directory == "" {
		var err error
		if c.server, err = k.restConfig(); err != nil {
			return nil, err
		}
		c.where = c.server.Host
	}
	return &Connection{Connector: c, Persistent: true}, nil
}

// A kubernetesConnection leads to an API server or a directory that stores ServiceEntries.
type kubernetesConnection struct {
	name, where string
	server      *rest.Config                     // nil: a directory stores them
	states      atomic.Pointer[kubernetesStates] // of the last target; a reload replaces it
}

func (*kubernetesConnection) Run(ctx context.Context) error { return untilDone(ctx) }

func (*kubernetesConnection) Close() {}

func (c *kubernetesConnection) State() admin.TargetState {
	out := admin.TargetState{Server: c.where}
	states := c.states.Load()
	if states == nil {
		return out
	}
	calls, watch := states.calls(), states.watch()
	for _, s := range []kubernetes.State{calls, watch} {
		out.Connected = out.Connected || s.Err == nil && !s.At.IsZero()
		if out.Since.Before(s.Since) {
			out.Since = s.Since
		}
		if s.Err == nil && out.Heard.Before(s.At) {
			out.Heard = s.At
		}
	}
	if watch.Err != nil {
		out.Unwatched = watch.Err.Error()
	}
	switch {
	case calls.Err != nil:
		out.LastError = calls.Err.Error()
	case !errors.Is(watch.Err, registry.ErrRefused): // calls would fail as well, though there may have been none
		out.LastError = out.Unwatched
	}
	return out
}

// kubernetesStates returns the states of the calls and the watches of one target.
type kubernetesStates struct {
	calls, watch func() kubernetes.State
}

func (c *kubernetesConnection) Bind(e *Env, bridges []config.Bridge, _ []config.Use) (*Bound, error) {
	m, label := e.Config.Mesh(c.name), e.Config.Registries[c.name].Kubernetes.Import.SubsetLabel
	codecs, err := projection.ServiceEntries(e.Config, m, label, bridges)
	if err != nil {
		return nil, err
	}
	o := kubernetes.Options{
		Owner: e.Config.Owner, Namespace: m.Namespace, VIPs: m.VIPs, Rules: label != "" || c.server == nil,
		Log: e.Logger("kubernetes", c.name), Accepts: e.Adopted,
	}
	if c.server == nil {
		store := kubernetes.NewDirectory(c.where)
		target := kubernetes.NewTarget(store, o)
		c.states.Store(&kubernetesStates{target.State, func() kubernetes.State { return kubernetes.State{} }})
		return &Bound{Target: target, Codecs: codecs, Check: checkKubernetes(c.where, store, o)}, nil
	}
	store, err := kubernetes.NewAPI(c.server, e.Config.Owner)
	if err != nil {
		return nil, err
	}
	target := kubernetes.NewWatchedTarget(store, o)
	c.states.Store(&kubernetesStates{target.State, target.WatchState})
	return &Bound{
		Target: target, Codecs: codecs, Background: target.Run, Check: checkKubernetes(c.where, store, o),
	}, nil
}

// Source implements Kind.
func (k kubernetesKind) Source(e *Env, name string) (Source, error) {
	server, err := k.restConfig()
	if err != nil {
		return nil, err
	}
	log := e.Logger("mesh", name)
	allow, tls := addresses(e.Config, name)
	from := k.Kubernetes.Source // the setting, not the method
	with := func(kind string) bool { return !slices.Contains(from.Without, kind) }
	reader, err := kube.New(kube.Options{
		Rules: kube.Rules{
			Domain: from.ClusterDomain, Keys: kube.Keys(from.Keys), SubsetLabel: from.SubsetLabel,
			Pods: with(config.WithoutPods), Decoder: mesh.NewDecoder(allow, tls),
		},
		Config: server, Namespaces: from.Namespaces, Nodes: with(config.WithoutNodes), Istio: with(config.WithoutIstio),
		Log: log,
	})
	if err != nil {
		return nil, err
	}
	naming, err := hostNaming(e.Config, name, from.ExportAll, false)
	if err != nil {
		return nil, err
	}
	source, err := mesh.New(mesh.Options{Clusters: reader, Naming: naming, Log: log})
	if err != nil {
		return nil, err
	}
	return kubernetesSource{source, reader, server.Host, from.Keys.Annotation}, nil
}

// keysByKubernetes sets the options to read the keys of a mesh from the objects of its
// cluster. Its endpoints are still read by xDS.
func keysByKubernetes(m *config.Istiod, o *mesh.Options) error {
	k := m.Mapping.Kubernetes
	server, err := restConfig(k.Kubeconfig, k.Context)
	if err != nil {
		return fmt.Errorf("istiod.mapping.%w", err)
	}
	server.Wrap(kubelist.Bound(int64(m.Limits.MaxReceive)))
	reader, err := kube.New(kube.Options{
		Rules: kube.Rules{
			Domain: m.ClusterDomain, Keys: kube.Keys(k.Keys), Pods: true, Decoder: mesh.NewDecoder(o.Allow, o.MutualTLS),
		},
		Config: server, Namespaces: k.Namespaces, Istio: true, Log: o.Log,
	})
	if err != nil {
		return err
	}
	o.Mapping = reader.Mapping()
	return nil
}

type kubernetesSource struct {
	*mesh.Source

	reader     *kube.Reader
	server     string
	annotation string // of service keys
}

func (s kubernetesSource) State() admin.SourceState {
	keys := s.Status().Mapping
	out := admin.SourceState{Connected: true, Mode: "watch", Mapping: &admin.Mapping{
		From: "kubernetes", Complete: keys.Complete, Keys: keys.Mapping.Len(),
		Conflicts: len(keys.Mapping.Conflicts()), LastRead: keys.At,
	}}
	for _, f := range s.reader.Status() {
		if out.Heard.Before(f.Heard) {
			out.Heard = f.Heard
		}
		shown := admin.Type{
			Type:      strings.Trim(path.Join(f.Namespace, f.Resource), "/"),
			Resources: f.Objects, Responses: f.Lists + f.Events,
		}
		if f.Err != nil {
			shown.LastError = f.Err.Error()
			out.LastError = cmp.Or(out.LastError, shown.LastError)
		}
		if _, forbidden := errors.AsType[*kube.Forbidden](f.Err); !forbidden && (f.Err != nil || !f.Listed) {
			out.Connected = false
			if out.LastContact.IsZero() || f.Since.Before(out.LastContact) {
				out.LastContact = f.Since
			}
		}
		out.Types = append(out.Types, shown)
	}
	return out
}

func (s kubernetesSource) Check(ctx context.Context, f *preflight.Findings) {
	var kinds []kube.InformerStatus
	var keys debug.Snapshot
	if err := runUntil(ctx, s.Source, func() bool {
		kinds, keys = s.reader.Status(), s.Status().Mapping
		return isReported(kinds, keys)
	}); err != nil {
		f.Fail("reachable", err, "check kubernetes.kubeconfig")
		return
	}
	for _, r := range kinds {
		checkKind(f, r, s.server)
	}
	switch {
	case keys.Err != nil: // checkKind has reported it
	case !keys.Complete:
		f.Unreachable("service keys", errNotReported, "increase --timeout")
	default:
		f.Pass("service keys", "%d by kubernetes", keys.Mapping.Len())
		checkAnnotations(f, keys, s.annotation)
	}
}

// errNotReported is the error of a check that ended before the API server had answered.
var errNotReported = errors.New("the API server has not reported everything yet")

// isReported reports whether every kind of object, and with them the keys, was read or
// failed to be read.
func isReported(kinds []kube.InformerStatus, keys debug.Snapshot) bool {
	return (keys.Complete || keys.Err != nil) &&
		!slices.ContainsFunc(kinds, func(f kube.InformerStatus) bool { return !f.Listed && f.Err == nil })
}

func checkKind(f *preflight.Findings, r kube.InformerStatus, server string) {
	what := strings.TrimSpace("read " + r.Resource + " " + r.Namespace)
	_, forbidden := errors.AsType[*kube.Forbidden](r.Err)
	switch {
	case forbidden:
		f.Fail(what, r.Err, allowReading+orWithout(r.Resource))
	case r.Err != nil:
		f.Unreachable(what, r.Err, "check the kubeconfig, and whether the API server at "+server+" is reachable from here")
	case !r.Listed:
		f.Unreachable(what, errNotReported, "increase --timeout")
	case r.Absent:
		f.Warn(what, "the API server does not have this kind",
			"install Istio's custom resource definitions, or list istio in source.without")
	default:
		f.Pass(what, "%s", registry.Counted(r.Objects, "object", "objects"))
	}
}

// allowReading is the remedy if the bridge may not read a kind of object.
const allowReading = "allow get, list and watch of these objects: apply deploy/kubernetes-source.yaml for the bridge's account, " +
	"or follow docs/kubernetes-source.md for single namespaces"

// orWithout returns a remedy that names the setting which skips a kind of object; empty if
// there is no such setting.
func orWithout(resource string) string {
	kind := resource
	if strings.HasSuffix(resource, ".networking.istio.io") {
		kind = config.WithoutIstio
	}
	if !slices.Contains([]string{config.WithoutPods, config.WithoutNodes, config.WithoutIstio}, kind) {
		return ""
	}
	return "; or list " + kind + " in source.without"
}

// checkKubernetes reports whether objects can be listed and written. It tries to write one
// object of each kind without storing it.
func checkKubernetes(
	where string, store kubernetes.Store, o kubernetes.Options,
) func(context.Context, *preflight.Findings) {
	return func(ctx context.Context, f *preflight.Findings) {
		fix := "allow this user to list and write files in import.directory"
		api, isAPI := store.(*kubernetes.API)
		if isAPI {
			fix = "install Istio's custom resource definitions, " + applyManifests(o) + ", or write into import.directory"
			checkRights(ctx, f, api, o)
		}
		began := time.Now()
		counts := make([]string, 0, len(o.Kinds()))
		unread := make(map[string]bool)
		for _, kind := range o.Kinds() {
			all, err := store.List(ctx, kind, o.Namespace)
			switch {
			case errors.Is(err, registry.ErrRefused) || err != nil && !isAPI:
				f.Fail("list", err, fix)
				return
			case err != nil:
				f.Unreachable("reachable", err,
					"check kubernetes.kubeconfig and context, and any NetworkPolicy between here and the API server")
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
		f.Pass("reachable", "%s", where)
		took := time.Since(began).Round(time.Millisecond)
		f.Pass("list", "%s in namespace %s, in %s", strings.Join(counts, " and "), o.Namespace, took)
		if len(unread) > 0 {
			f.Warn("list", fmt.Sprintf("%d cannot be read, such as %s", len(unread), slices.Min(slices.Collect(maps.Keys(unread)))),
				"repair or delete them: a host in them may be written twice, and istiod may stop reading changes of the directory")
		}
		for _, kind := range o.Kinds() {
			if err := store.Try(ctx, kind, o.Namespace); err != nil {
				f.Fail("write", err, fix)
				return
			}
		}
		f.Pass("write", "a write was tried, without storing an object")
	}
}

const manifestNamespace = "xds-bridge"

// applyManifests returns the remedy for missing rights: the manifests to apply.
func applyManifests(o kubernetes.Options) string {
	files := "deploy/kubernetes-import.yaml"
	if o.Rules {
		files += " and deploy/kubernetes-import-subsets.yaml"
	}
	if o.Namespace != manifestNamespace {
		files += ", with namespace " + o.Namespace + " instead of " + manifestNamespace + ","
	}
	return "apply " + files + " for the bridge's account"
}

// lackingRights says which rights the bridge's account does not have in a namespace.
func lackingRights(lacking []kubernetes.Right, namespace string) string {
	return fmt.Sprintf("the bridge is not allowed to %s in namespace %s", kubernetes.Listed(lacking), namespace)
}

// checkRights reports missing rights. Other checks report an API server that does not
// answer.
func checkRights(ctx context.Context, f *preflight.Findings, api *kubernetes.API, o kubernetes.Options) {
	const check = "rights"
	switch lacking, err := api.Lacking(ctx, kubernetes.Rights(o)); {
	case err != nil:
	case len(lacking) > 0:
		f.Fail(check, errors.New(lackingRights(lacking, o.Namespace)), applyManifests(o))
	default:
		f.Pass(check, "%s in namespace %s", kubernetes.Listed(kubernetes.Rights(o)), o.Namespace)
	}
	if lacking, err := api.Lacking(ctx, kubernetes.RecordRights(o)); err == nil && len(lacking) > 0 {
		f.Warn("records", "a restart will forget losses and decisions: "+lackingRights(lacking, o.Namespace), applyManifests(o))
	}
}
