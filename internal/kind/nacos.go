package kind

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

type nacosKind struct{ *config.Nacos }

func (nacosKind) Title() string { return "nacos" }

func (n nacosKind) Facilities() Facilities {
	return Facilities{ID: n.idStore(), records: n.records, documents: n.documents}
}

// Connection implements Kind. The connection is a client of the cluster.
func (n nacosKind) Connection(e *Env, at config.TargetKey) (*Connection, error) {
	name := at.Registry
	opts := n.options(e.Logger("nacos", name))
	opts.Observe = e.Metrics.Nacos(name)
	client, err := nacos.New(opts)
	if err != nil {
		return nil, err
	}
	return &Connection{
		Connector:   &nacosConnection{name, client},
		OnceRefusal: "Nacos deletes an instance when the connection of its publisher closes",
	}, nil
}

type nacosConnection struct {
	name   string
	client *nacos.Client
}

func (c *nacosConnection) Run(ctx context.Context) error {
	return c.client.Run(ctx)
}

func (*nacosConnection) Close() {} // Run closes the client

func (c *nacosConnection) State() admin.TargetState { return nacosState(c.client.State()) }

func (c *nacosConnection) Bind(e *Env, bridges []config.Bridge, former []config.Use) (*Bound, error) {
	name, client, r := c.name, c.client, &Bound{}
	n := e.Config.Registries[name].Nacos
	codecs, uses, err := projection.NewCodecs[nacosFormat](e.maker(), name, format.Nacos, bridges, former)
	if err != nil {
		return nil, err
	}
	var layouts []nacos.Layout
	for _, ownNames := range []bool{true, false} { // a service belongs to the first layout that claims it
		for _, p := range uses {
			if d, _ := formats.Find(p.Format.Format); d.OwnNames == ownNames {
				layouts = append(layouts, scopedTo(p.Codec, n.Namespace, p.Group))
			}
		}
	}
	r.Codecs = codecs
	target, err := nacos.NewTarget(client, nacos.TargetOptions{
		Owner: metadata.OwnerMark(e.Config.Owner), Layouts: layouts, Signer: e.Signer,
	})
	if err != nil {
		return nil, err
	}
	r.Target, r.Check = target, checkNacos(n, client, target)
	return r, nil
}

func (n nacosKind) options(log *slog.Logger) nacos.Options {
	o := nacos.Options{
		Servers: n.Servers, GRPCPort: n.GRPCPort, Namespace: n.Namespace, Username: n.Username,
		MaxReceive: int(n.Limits.MaxReceive), Log: log,
	}
	if n.PasswordFile != "" {
		o.Password = func() (string, error) {
			s, err := config.ReadSecret(n.PasswordFile)
			return s.Reveal(), err
		}
	}
	if n.TLS != nil {
		o.TLS = tlsfile.Files{
			CA: n.TLS.CAFile, Cert: n.TLS.CertFile, Key: n.TLS.KeyFile, ServerName: n.TLS.ServerName,
		}.Config
	}
	return o
}

func nacosState(s nacos.State) admin.TargetState {
	t := admin.TargetState{
		Connected: s.Connected, Server: s.Server, Since: s.Since, Reconnects: s.Again, LastError: s.LastError,
	}
	if l := s.Login; l.Username != "" {
		t.Login = &admin.Login{Username: l.Username, Expires: l.Expires}
		if l.Err != nil {
			t.Login.LastError = l.Err.Error()
		}
	}
	return t
}

func (n nacosKind) Source(e *Env, name string) (Source, error) {
	var read []nacos.Format
	var scopes []nacos.Scope
	for _, u := range projection.Readings(e.Config, name) {
		f, err := projection.NewCodec[nacosFormat](e.maker(), u, format.Nacos)
		if err != nil {
			return nil, err
		}
		read = append(read, scopedTo(f, n.Namespace, u.Group))
		if at := (nacos.Scope{Namespace: n.Namespace, Group: u.Group}); !slices.Contains(scopes, at) {
			scopes = append(scopes, at)
		}
	}
	opts := n.options(e.Logger("nacos", name))
	opts.Observe = e.Metrics.Nacos(name)
	stored, err := newDocumentRegistry(e, name)
	if err != nil {
		return nil, err
	}
	source, err := nacos.NewSource(opts, nacos.SourceOptions{
		Formats: read, Scopes: scopes, ListInterval: n.ListInterval.Std(),
		Asker: stored.asker(newAskers(e.Config, name)), Elsewhere: stored != nil,
	})
	if err != nil {
		return nil, err
	}
	return stored.runWith(nacosSource{source}), nil
}

type nacosSource struct{ *nacos.Source }

func (n nacosSource) State() admin.SourceState {
	s := n.Source.State()
	return admin.SourceState{
		Connected: s.Connected, Mode: "subscribe", LastError: s.LastError, LastContact: s.Since, Reconnects: s.Again,
	}
}

// idStore returns the store of the namespace's id. Each call of Ask uses its own connection.
func (n nacosKind) idStore() *IDStore {
	o := n.options(nil)
	ask := func(ctx context.Context, offer string) (string, error) {
		client, err := nacos.New(o)
		if err != nil {
			return "", err
		}
		var id string
		ended := during(ctx, client.Run, func() { id, err = client.ID(ctx, offer) })
		return id, errors.Join(err, ended)
	}
	return &IDStore{Where: "config " + nacos.IDData + " of group " + nacos.IDGroup, Ask: ask}
}

func (n nacosKind) records(e *Env, name string) (*recordStore, error) {
	client, err := nacos.New(n.options(e.Logger("nacos", name)))
	if err != nil {
		return nil, err
	}
	permission := "allow " + cmp.Or(n.Username, "anonymous clients") + " to write configurations of group " +
		nacos.IDGroup + " in namespace " + cmp.Or(n.Namespace, "public")
	r := nacos.NewRecorder(client, metadata.OwnerMark(e.Config.Owner))
	return &recordStore{r, name, permission, r.TryRecord, client.Run, func() {}}, nil
}

// documents returns the store of the documents of Dubbo applications: configurations.
func (n nacosKind) documents(e *Env, name, _ string) (documentStore, error) {
	client, err := nacos.New(n.options(e.Logger("nacos", name)))
	if err != nil {
		return nil, err
	}
	layout, err := dubbo.NewNacosApp(format.Options{Namespace: n.Namespace})
	if err != nil {
		return nil, err
	}
	return documentFuncs{
		run: client.Run,
		read: func(ctx context.Context, ref metadata.Ref) (string, error) {
			at, _ := layout.Config(registry.Entry{Group: ref.Group, Key: ref.Key})
			at.Namespace = n.Namespace
			return client.Document(ctx, at)
		},
	}, nil
}

// A nacosFormat encodes and lays out entries in Nacos.
type nacosFormat interface {
	metadata.Codec
	nacos.Format
}

// scoped is a format within one namespace and group. It implements nacos.Layout.
type scoped struct {
	nacosFormat
	namespace, group string
}

// Scopes implements nacos.Layout.
func (s scoped) Scopes() []registry.Group {
	return []registry.Group{{Kind: s.Kind(), Namespace: s.namespace, Group: s.group}}
}

// GroupOf implements nacos.Layout.
func (s scoped) GroupOf(namespace, group, service string) (registry.Group, bool) {
	if namespace != s.namespace || group != s.group {
		return registry.Group{}, false
	}
	return s.nacosFormat.GroupOf(namespace, group, service)
}

// Foreign implements nacos.Exclusive.
func (s scoped) Foreign(service string, in metadata.NacosInstance) error {
	if f, ok := s.nacosFormat.(nacos.Exclusive); ok {
		return f.Foreign(service, in)
	}
	return nil
}

// multiPath is a scoped format that stores parts of its groups in configurations.
type multiPath struct {
	scoped
	nacos.MultiPath
}

// scopedFormat is a format within one namespace and group.
type scopedFormat interface {
	nacosFormat
	Scopes() []registry.Group
}

// scopedTo returns a format within one namespace and group.
func scopedTo(f nacosFormat, namespace, group string) scopedFormat {
	s := scoped{f, namespace, group}
	if w, ok := f.(nacos.MultiPath); ok {
		return multiPath{s, w}
	}
	return s
}

func (n nacosSource) Check(ctx context.Context, f *preflight.Findings) {
	state, services, err := n.Source.Check(ctx)
	switch {
	case state.Login.Err != nil:
		checkLogin(f, state.Login.Err)
	case err != nil && !state.Connected:
		f.Unreachable("reachable", err, reachNacos)
	case errors.Is(err, nacos.ErrNoNamespace):
		f.Fail("list", err, namespaceRemedy)
	case err != nil:
		f.Fail("list", err, preflight.RightRemedy(err,
			"allow the bridge's user to read the namespace and the groups of each format"))
	default:
		f.Pass("reachable", "%s", state.Server)
		if services == 0 {
			f.Warn("list", "found no service in the configured formats",
				"check nacos.namespace and group of the bridge's formats or reads, unless no provider has registered yet")
		} else {
			f.Pass("list", "%s", registry.Counted(services, "service", "services"))
		}
	}
}

// checkNacos checks a Nacos cluster as a target. To do so, it registers an instance and
// deregisters it.
func checkNacos(
	n *config.Nacos, client *nacos.Client, target *nacos.Target,
) func(context.Context, *preflight.Findings) {
	return func(ctx context.Context, f *preflight.Findings) {
		var r nacos.Report
		var state nacos.State
		var err error
		ended := during(ctx, client.Run, func() {
			r, err = target.Check(ctx)
			state = client.State()
		})
		login := state.Login
		switch err := cmp.Or(err, ended); {
		case login.Err != nil:
			checkLogin(f, login.Err)
			return
		case err != nil:
			f.Unreachable("reachable", err, reachNacos)
			return
		}
		f.Pass("reachable", "%s", r.Server)
		if login.Username != "" {
			f.Pass("login", "as %s, until %s", login.Username, login.Expires.Format(time.RFC3339))
		}
		preflight.CheckPlaintext(f, n.TLS, n.Username, n.Servers, "write https:// servers and tls: {caFile: …}")
		checkNacosAccess(f, n, r)
	}
}

const reachNacos = "check nacos.servers, and that the gRPC port is open as well: grpcPort, by default 1000 above the HTTP port"

// checkLogin reports why the login failed, with the remedy. Only a login that the server
// denied says anything about the password.
func checkLogin(f *preflight.Findings, err error) {
	switch {
	case errors.Is(err, nacos.ErrDenied):
		f.Fail("login", err, "check username and passwordFile of the registry")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		f.Fail("login", err, "allow the bridge to read passwordFile of the registry")
	default:
		f.Unreachable("login", err,
			"check nacos.servers: a login uses the HTTP port and the server's context path; see also the log of Nacos")
	}
}

const namespaceRemedy = "set nacos.namespace to the id of the namespace, which its page in the console shows, not to its name; " +
	"or create the namespace"

func checkNacosAccess(f *preflight.Findings, n *config.Nacos, r nacos.Report) {
	user := cmp.Or(n.Username, "anonymous clients")
	namespace := cmp.Or(n.Namespace, "public")
	switch {
	case errors.Is(r.Read, nacos.ErrNoNamespace):
		f.Fail("list", r.Read, namespaceRemedy)
	case r.Read != nil:
		f.Fail("list", r.Read, preflight.RightRemedy(r.Read, "allow "+user+" to read the namespace "+namespace))
	case r.Groups == 0 && n.Namespace != "": // Nacos accepts any id, and not every server lists its namespaces
		f.Warn("list", "found no service in the configured formats in namespace "+namespace,
			"unless the namespace is new, check that nacos.namespace is its id, which its page in the console shows, not its name")
	default:
		f.Pass("list", "%s in the configured formats in namespace %s",
			registry.Counted(r.Groups, "service", "services"), namespace)
	}
	if r.Write != nil {
		f.Fail("write", r.Write, preflight.RightRemedy(r.Write, "allow "+user+" to write to the namespace "+namespace))
	} else {
		f.Pass("write", "an instance was registered and deregistered in %s", r.Took.Round(time.Millisecond))
	}
	if r.Persistent != "" {
		f.Warn("persistent",
			r.Persistent+" has persistent instances; next to them, Nacos rejects the bridge's instances, which are ephemeral",
			"if a bridge writes this service, give the format another group or the service another name; "+
				"a service that the bridge writes first rejects persistent instances")
	}
	if r.Duplicate == "" {
		f.Pass("owner", "no other process publishes as this owner")
	} else {
		f.Warn("owner", "another process publishes as this owner, such as in "+r.Duplicate,
			"if it is not a replica with this configuration, give it another owner; "+
				"Nacos cannot reject a second deployment of an owner")
	}
}
