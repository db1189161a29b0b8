package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/lease"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// A zookeeperFormat encodes and lays out entries in ZooKeeper.
type zookeeperFormat interface {
	metadata.Codec
	zookeeper.Format
}

type zookeeperKind struct{ *config.ZooKeeper }

func (zookeeperKind) Title() string { return "zookeeper" }

func (z zookeeperKind) Facilities() Facilities {
	return Facilities{ID: z.idStore(), records: z.records, documents: z.documents, Leases: z.leases}
}

// Connection implements Kind. The connection is a client of the ensemble.
func (z zookeeperKind) Connection(e *Env, at config.TargetKey) (*Connection, error) {
	name := at.Registry
	opts, back := z.options(e.Logger("zookeeper", name)), make(chan struct{}, 1)
	opts.Observe = onReturn(e.Metrics.Sessions(name), back)
	client, err := zookeeper.Dial(opts)
	if err != nil {
		return nil, err
	}
	return &Connection{
		Connector:   &zookeeperConnection{name, client},
		Reconnected: back, Persistent: z.Lifetime != "session",
		Session: func() int64 { return client.State().Session },
	}, nil
}

// A zookeeperConnection is a client of an ensemble. The client reconnects by itself.
type zookeeperConnection struct {
	name   string
	client *zookeeper.Client
}

func (*zookeeperConnection) Run(ctx context.Context) error { return untilDone(ctx) }

func (c *zookeeperConnection) Close() { c.client.Close() }

func (c *zookeeperConnection) State() admin.TargetState {
	s := c.client.State()
	out := admin.TargetState{
		Connected: s.Connected, Server: s.Server, Since: s.Since, Reconnects: connectedAgain(s), LastError: s.LastError,
	}
	if err := c.client.Unwatched(); err != nil {
		out.Unwatched = err.Error()
	}
	return out
}

func (c *zookeeperConnection) Bind(e *Env, bridges []config.Bridge, former []config.Use) (*Bound, error) {
	name, r := c.name, &Bound{}
	z := e.Config.Registries[name].ZooKeeper
	codecs, uses, err := projection.NewCodecs[zookeeperFormat](e.maker(), name, format.ZooKeeper, bridges, former)
	if err != nil {
		return nil, err
	}
	r.Codecs = codecs
	layouts := make([]zookeeper.Layout, len(uses))
	for i, p := range uses {
		layouts[i] = p.Codec
	}
	ownSession, metrics := e.OwnSession, e.Metrics // the target must not keep e, which has the runtime
	to := zookeeper.TargetOptions{
		Owner: e.Config.Owner, Layouts: layouts, Bridges: projection.Identities(bridges), Signer: e.Signer,
		Lifetime: zookeeper.Lifetime(z.Lifetime), Access: zookeeper.Access(z.ACL),
		Shared: e.Config.Replicas.Shared(), Fence: e.Fence(name),
		Ours: func(session int64) bool { return ownSession(name, session) }, Adopts: e.Adopted,
		Log:   e.Logger("zookeeper", name),
		Usage: func(share float64) { metrics.LimitUsage(name, "znode_children_bytes", share) },
	}
	target, err := zookeeper.NewTarget(c.client, to)
	if err != nil {
		return nil, err
	}
	r.Bridges = projection.Identities(bridges)
	r.Target, r.Admitter, r.Owners = target, target, target
	r.Check = checkZooKeeper(e.Config, config.TargetKey{Registry: name}, target)
	return r, nil
}

// onReturn signals on back when a lost connection is reestablished.
func onReturn(observe func(zookeeper.State), back chan<- struct{}) func(zookeeper.State) {
	lost := false
	return func(s zookeeper.State) {
		observe(s)
		if s.Connected && lost {
			poke(back)
		}
		lost = !s.Connected && s.Session != 0
	}
}

// poke sends to a channel unless its buffer is full.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (z zookeeperKind) options(log *slog.Logger) zookeeper.Options {
	o := zookeeper.Options{
		Servers: z.Servers, SessionTimeout: z.SessionTimeout.Std(), Timeout: z.Timeout.Std(),
		ReceiveLimit: int(z.Limits.MaxReceive), User: z.User, PasswordFile: z.PasswordFile, Log: log,
	}
	if t := z.TLS; t != nil {
		files := tlsfile.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile, ServerName: t.ServerName}
		o.TLS = files.Config
	}
	return o
}

func (z zookeeperKind) Source(e *Env, name string) (Source, error) {
	var formats []zookeeper.Format
	for _, u := range projection.Readings(e.Config, name) {
		f, err := projection.NewCodec[zookeeperFormat](e.maker(), u, format.ZooKeeper)
		if err != nil {
			return nil, err
		}
		formats = append(formats, f)
	}
	o := z.options(e.Logger("zookeeper", name))
	o.Observe = e.Metrics.Sessions(name)
	stored, err := newDocumentRegistry(e, name)
	if err != nil {
		return nil, err
	}
	source, err := zookeeper.NewSource(o, zookeeper.SourceOptions{
		Formats: formats, Log: o.Log,
		Asker: stored.asker(newAskers(e.Config, name)), Elsewhere: stored != nil,
	})
	if err != nil {
		return nil, err
	}
	return stored.runWith(zookeeperSource{source}), nil
}

type zookeeperSource struct{ *zookeeper.Source }

func (z zookeeperSource) State() admin.SourceState {
	s := z.Source.State()
	return admin.SourceState{
		Connected: s.Connected, Mode: "watch", LastError: s.LastError, LastContact: s.Since,
		Reconnects: connectedAgain(s),
	}
}

// connectedAgain returns the number of connections after the first.
func connectedAgain(s zookeeper.State) int { return s.Reconnects + max(s.Sessions-1, 0) }

// idStore returns the store of the ensemble's id. Each call of Ask uses its own connection.
func (z zookeeperKind) idStore() *IDStore {
	o := z.options(nil)
	return &IDStore{Where: zookeeper.IDNode, Ask: func(ctx context.Context, offer string) (string, error) {
		client, err := zookeeper.Dial(o) //nolint:contextcheck // Close ends it
		if err != nil {
			return "", err
		}
		defer client.Close()
		return client.ID(ctx, offer, zookeeper.Access(z.ACL))
	}}
}

func (z zookeeperKind) records(e *Env, name string) (*recordStore, error) {
	o := z.options(e.Logger("zookeeper", name))
	o.Observe = e.Metrics.Sessions(name)
	client, err := zookeeper.Dial(o)
	if err != nil {
		return nil, err
	}
	permission := "allow " + cmp.Or(z.User, anyUser) + " to create, write and delete below /xds-bridge/" + e.Config.Owner
	r := zookeeper.NewRecorder(client, e.Config.Owner, zookeeper.Access(z.ACL))
	return &recordStore{r, name, permission, r.TryRecord, untilDone, client.Close}, nil
}

// anyUser is the user in a remedy if no user is configured.
const anyUser = "anyone (no user is set)"

// leases opens the leases of all targets over one connection of their own, so that no other
// request delays a renewal. Its sessions are not observed: those of the registry's own
// connection are.
func (z zookeeperKind) leases(
	owner string, log *slog.Logger,
) (open func(target string) (lease.Store, error), end func(), err error) {
	client, err := zookeeper.Dial(z.options(log))
	if err != nil {
		return nil, nil, err
	}
	return func(target string) (lease.Store, error) {
		return zookeeper.NewLeaseStore(client, owner, target, zookeeper.Access(z.ACL))
	}, client.Close, nil
}

// documents returns the store of the documents of Dubbo applications below root.
func (z zookeeperKind) documents(e *Env, name, root string) (documentStore, error) {
	layout, err := dubbo.NewZooKeeperApp(format.Options{Documents: root})
	if err != nil {
		return nil, err
	}
	o := z.options(e.Logger("zookeeper", name))
	var client atomic.Pointer[zookeeper.Client]
	return documentFuncs{
		run: func(ctx context.Context) error {
			c, err := zookeeper.Dial(o) //nolint:contextcheck // Close ends it
			if err != nil {
				return err
			}
			defer c.Close()
			client.Store(c)
			<-ctx.Done()
			return nil
		},
		read: func(ctx context.Context, ref metadata.Ref) (string, error) {
			c := client.Load()
			if c == nil {
				return "", errNotConnected
			}
			return c.Document(ctx, layout.Places(ref))
		},
	}, nil
}

// checkZooKeeper checks a ZooKeeper ensemble as a target. To do so, it creates a node and
// deletes it.
func checkZooKeeper(
	cfg *config.Config, at config.TargetKey, target *zookeeper.Target,
) func(context.Context, *preflight.Findings) {
	z := cfg.Registries[at.Registry].ZooKeeper
	return func(ctx context.Context, f *preflight.Findings) {
		r, err := target.Check(ctx)
		if err != nil {
			f.Unreachable("reachable", err, "check zookeeper.servers, tls, and that the ensemble has a quorum")
			return
		}
		f.Pass("reachable", "%s", r.Server)
		preflight.CheckPlaintext(f, z.TLS, z.User, z.Servers,
			"if the ensemble has a secure port, use it with tls: {caFile: …}")
		if r.Version != "" {
			f.Pass("version", "%s", r.Version)
		} else {
			f.Warn("version", "not reported", "to see it, add srvr to 4lw.commands.whitelist of the server")
		}
		if r.Granted == r.Asked {
			f.Pass("session", "%s", r.Granted)
		} else {
			f.Warn("session", fmt.Sprintf("the bridge requested %s, but the server granted %s", r.Asked, r.Granted),
				"set zookeeper.sessionTimeout within the limits of the server")
		}
		if r.Read != nil {
			f.Fail("list", r.Read, rightsRemedy(r.Read,
				"allow the bridge's user to read the root of each format, and the parent znodes in it"))
		} else {
			f.Pass("list", "the parent znodes of all formats are readable")
		}
		if r.Write != nil {
			f.Fail("write", r.Write, rightsRemedy(r.Write,
				"allow "+cmp.Or(z.User, anyUser)+" to create and delete below /xds-bridge and the root of each format"))
			return
		}
		f.Pass("write", "a node was created and deleted in %s", r.Took.Round(time.Millisecond))
		checkClock(f, r.Skew)
		checkWriters(ctx, f, cfg, at, target)
	}
}

// rightsRemedy returns the remedy for an error of an operation that requires a permission:
// the remedy for authentication or quota, or else that of preflight.RightRemedy.
func rightsRemedy(err error, permission string) string {
	switch {
	case errors.Is(err, zookeeper.ErrAuthRequired):
		return "set user and passwordFile of the registry, and enable digest authentication on the server"
	case errors.Is(err, zookeeper.ErrQuota):
		return "raise the quota by setquota"
	}
	return preflight.RightRemedy(err, permission)
}

// ownerTimeout limits the reads of checkWriters.
const ownerTimeout = 3 * time.Second

// checkWriters reports why run could not write: another process of the owner runs, or
// bridges of this configuration wrote as another owner.
func checkWriters(ctx context.Context, f *preflight.Findings, cfg *config.Config, at config.TargetKey, target *zookeeper.Target) {
	const check = "owner"
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	who, err := target.Alive(ctx, cfg.Owner)
	switch {
	case err != nil:
		f.Warn(check, "unknown who writes as "+cfg.Owner+": "+err.Error(),
			preflight.RightRemedy(err, "allow the bridge's user to read /xds-bridge/"+cfg.Owner))
		return
	case who != "" && cfg.Replicas.Shared():
		f.Pass(check, "%s writes as %s, which replicas share", who, cfg.Owner)
		return
	case who != "":
		if _, unknown := runningTarget(ctx, cfg, at); unknown == nil {
			f.Pass(check, "%s, the running bridge, writes as %s", who, cfg.Owner)
			return
		}
		f.Warn(check, who+" writes as "+cfg.Owner, "if that is not the bridge of this configuration, "+
			"give this configuration another owner; while the other process runs, run exits with 2")
		return
	}
	switch err := target.Admit(ctx); {
	case err != nil:
		f.Fail(check, err, "restore the owner, or adopt, release or purge the entries of the earlier owner")
	case ctx.Err() != nil:
		f.Warn(check, "replicas may have written last as "+cfg.Owner,
			"stop them, or set their replicas.lease in this configuration; run waits to see whether they have stopped")
	default:
		f.Pass(check, "no other process writes as %s", cfg.Owner)
	}
}

func (z zookeeperSource) Check(ctx context.Context, f *preflight.Findings) {
	r, err := z.Source.Check(ctx)
	switch {
	case r.State.Session == 0 && err != nil:
		f.Unreachable("reachable", err, "check zookeeper.servers, tls, and that the ensemble has a quorum")
	case err != nil:
		f.Fail("list", err, rightsRemedy(err, "allow the bridge's user to read the root of each format"))
	default:
		f.Pass("reachable", "%s", r.State.Server)
		if err := r.Denied.Error(); err != nil {
			f.Fail("list", err, "allow the bridge's user to read them")
			return
		}
		if len(r.Absent) > 0 {
			absent, fix, _ := strings.Cut(zookeeper.RootAbsent, "; ")
			f.Warn("list", strings.Join(r.Absent, ", ")+" "+absent, fix)
		} else {
			f.Pass("list", "%s in the roots of all formats", registry.Counted(r.Parents, "parent znode", "parent znodes"))
		}
		if n := len(r.Rules); n > 0 {
			f.Warn("rules", fmt.Sprintf("the bridge ignores the rules at %s (paths with rules: %d): "+
				"a provider that dubbo-admin disables there stays available in targets", r.Rules[0], n),
				"disable such a provider by the QoS command offline, and set weights in the registration of the provider")
		}
	}
}
