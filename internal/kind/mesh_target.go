package kind

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/admin/client"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// Connection implements Kind. The connection is the address at which istiods and data planes
// read imported services.
func (m meshKind) Connection(e *Env, at config.TargetKey) (*Connection, error) {
	imports, name := m.Import, at.String()
	o := mcp.Options{
		Owner: metadata.OwnerMark(e.Config.Owner), VIPs: imports.VIPs, Observe: e.Metrics.Served(at.Registry, at.Listen),
	}
	log := e.TargetLogger("mcp", at)
	records, err := newMeshRecords(e, at, imports)
	if err != nil {
		return nil, err
	}
	o.PersistTo, o.Observe = records.stores, logStateErrors(o.Observe, log)
	if p := e.KeyPublisher(at.Registry); p != nil {
		o.Confirmed = func(hosts map[naming.ServiceKey]naming.HostAddress) { p.SetOf(name, hosts) }
	}
	o.Predecessor = e.Predecessor(at)
	target := mcp.NewTarget(o)
	rules, err := readRules(imports.Rules)
	if err != nil {
		return nil, fmt.Errorf("rulesFile: %w", err)
	}
	for _, refused := range rules.refused {
		log.Error("rule rejected, data planes ignore it", "file", refused.File, "line", refused.Line, "err", refused.Message)
	}
	var planes *dataplane.Server
	if imports.DataPlanes {
		planes = dataplane.NewServer(dataplane.Options{VIPs: imports.VIPs, Rules: rules.rules})
	}
	server := mcp.NewServer(target, mcp.ServerOptions{
		Access: accessOf(imports), DataPlanes: planes,
		Setting: "registries." + at.Registry + ".istiod.import.", Log: log,
	})
	c := &meshConnection{
		at: at, listen: e.Listen, records: records, target: target, server: server, refused: rules.refused,
		hasIstiod: m.Address != "",
	}
	l := &Connection{Connector: c, Served: target}
	if e.Listen == nil && len(o.PersistTo) == 0 { // the address belongs to the running bridge
		l.Remark = "there is no record of what is served at " + at.Listen +
			", so every entry counts as new; set state.dir to compare with what was served last"
	}
	return l, nil
}

// A meshConnection is the address at which istiods and data planes read a mesh.
type meshConnection struct {
	at        config.TargetKey
	listen    func(ctx context.Context, address string) (net.Listener, error) // nil: nothing is served
	records   *meshRecords
	target    *mcp.Target
	server    *mcp.Server
	refused   config.Errors // the rejected rules, which data planes ignore
	hasIstiod bool          // false: only data planes read
}

func (c *meshConnection) Run(ctx context.Context) error {
	if c.listen == nil {
		return c.records.runWhile(ctx, untilDone)
	}
	return c.records.runWhile(ctx, c.serve)
}

func (c *meshConnection) Close() { c.records.Close() }

func (c *meshConnection) Bind(e *Env, bridges []config.Bridge, _ []config.Use) (*Bound, error) {
	codecs, err := projection.ServiceEntries(e.Config, e.Config.Mesh(c.at.Registry), "", bridges)
	return &Bound{Target: c.target, Codecs: codecs, Check: checkMeshTarget(e.Config, c)}, err
}

// serve answers istiods and data planes until ctx ends. It listens at once, because an istiod
// exits if its config source is unreachable at its start.
func (c *meshConnection) serve(ctx context.Context) error {
	l, err := c.listen(ctx, c.at.Listen)
	if err != nil {
		return fmt.Errorf("listen for clients: %w; change listen of the bridge", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.target.Run(ctx) })
	group.Go(func() error { return c.server.Serve(ctx, l) })
	return group.Wait()
}

func (c *meshConnection) State() admin.TargetState {
	s := admin.TargetState{}
	for _, r := range c.refused {
		s.RefusedRules = append(s.RefusedRules, r.Error())
	}
	for _, r := range c.server.Readers() {
		s.Readers = append(s.Readers, admin.Reader{
			Node: r.Node, Address: r.Address, Since: r.Since, Sent: r.Sent, Acked: r.Acked,
			DataPlane: r.DataPlane, Refused: r.Refused,
		})
	}
	s.Connected = len(s.Readers) > 0
	switch r, at := c.server.Departed(); {
	case s.Connected:
	case at.IsZero() && !c.hasIstiod:
		s.LastError = "configure a data plane with this address"
	case !at.IsZero():
		s.Since, s.LastError = at, fmt.Sprintf("%s read until %s and disconnected", r.Address, at.Format(time.TimeOnly))
	}
	if err := c.target.Ready(); err != nil && s.Connected { // without readers, the error above matters more
		s.LastError = err.Error()
	}
	if err := c.target.PersistenceError(); err != nil {
		s.Unrecorded = "what is served is not persisted for a restart: " + err.Error()
	}
	return s
}

// accessOf returns the clients that may connect to the address of a mesh.
func accessOf(m config.Import) mcp.Access {
	a := mcp.Access{Names: m.Clients.Names, Networks: m.Clients.Networks}
	if t := m.TLS; t != nil {
		a.TLS = tlsfile.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile}.Server
	}
	return a
}

// checkMeshTarget reports whether the address is free or held by the running bridge, and
// whether records can be stored. It warns about clients that may read too much there.
func checkMeshTarget(cfg *config.Config, c *meshConnection) func(context.Context, *preflight.Findings) {
	return func(ctx context.Context, f *preflight.Findings) {
		at := c.at
		running := checkListen(ctx, f, cfg, at)
		switch {
		case cfg.Registries[at.Registry].Istiod.Address != "":
			f.Pass("configSources", "%s", sourceAddress(at.Listen))
			checkIstiod(ctx, f, cfg, at, running)
		case running == nil:
		case len(running.Readers) > 0:
			f.Pass("data planes", "%s", running.ReadBy())
		default:
			f.Warn("data planes", running.ReadBy(), "configure data planes with this address, as docs/data-planes.md shows")
		}
		for _, e := range cfg.Exposed(at.Registry, at.Listen) {
			f.Warn("clients", e.What, e.Remedy)
		}
		for _, r := range c.refused {
			f.Fail("rulesFile", r, "change the rule; the others apply")
		}
		c.records.Check(ctx, f)
	}
}

// checkListen reports whether the bridge can listen at the address. If the running bridge
// holds the address, checkListen returns the target as that bridge reports it.
func checkListen(
	ctx context.Context, f *preflight.Findings, cfg *config.Config, at config.TargetKey,
) *admin.TargetStatus {
	const check = "listen"
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.Listen)
	if err == nil {
		_ = l.Close()
		f.Pass(check, "%s is free", at.Listen)
		return nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		f.Fail(check, err, "change listen of the bridge to an address of this machine and a port that this user may open")
		return nil
	}
	target, unknown := runningTarget(ctx, cfg, at)
	if unknown != nil {
		f.Fail(check, fmt.Errorf("%w; not held by a running bridge of this configuration: %w", err, unknown),
			"change listen of the bridge, or stop the other process that holds the port")
		return nil
	}
	f.Pass(check, "%s is held by the running bridge of owner %s", at.Listen, cfg.Owner)
	return target
}

// checkIstiod reports whether an istiod reads the address or, if no bridge runs yet, whether
// istiod is reachable.
func checkIstiod(
	ctx context.Context, f *preflight.Findings, cfg *config.Config, at config.TargetKey, running *admin.TargetStatus,
) {
	const check, fix = "istiod", "start istiod, and add the address above to its configSources"
	address := cfg.Registries[at.Registry].Istiod.Address
	switch {
	case running != nil && len(running.Readers) > 0:
		f.Pass(check, "%s", running.ReadBy())
	case running != nil:
		f.Warn(check, running.ReadBy(), fix)
	default:
		if err := dial(ctx, address); err != nil {
			f.Warn(check, err.Error(), "check istiod.address; istiod exits if it starts before the bridge, and is restarted")
			return
		}
		f.Pass(check, "%s is reachable; once the bridge runs, this check shows whether istiod reads it", address)
	}
}

// statusTimeout is how long a bridge on this machine may take to answer.
const statusTimeout = 10 * time.Second

// runningTarget returns a target as the running bridge of the configuration reports it. It
// fails if no such bridge answers, or if that bridge does not write the target.
func runningTarget(ctx context.Context, cfg *config.Config, at config.TargetKey) (*admin.TargetStatus, error) {
	if cfg.Admin.Address == "" || cfg.Admin.Address == "off" {
		return nil, errors.New("admin.address is off")
	}
	a, err := client.New(cfg.Admin.Address, cfg.Admin, statusTimeout)
	if err != nil {
		return nil, err
	}
	a.Owner, a.Remedy = cfg.Owner, "a bridge of another owner runs"
	d, err := a.Status(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(d.Targets, func(t admin.TargetStatus) bool { return t.Name == at.String() })
	if i < 0 {
		return nil, fmt.Errorf("the bridge at %s serves nothing there", cfg.Admin.Address)
	}
	isConflict := func(c admin.Condition) bool { return c.Registry == at.String() && c.Name == admin.OwnerConflict }
	if slices.ContainsFunc(d.Conditions, isConflict) {
		return nil, fmt.Errorf("the bridge at %s may not write there", cfg.Admin.Address)
	}
	return &d.Targets[i], nil
}

// sourceAddress says how to write an address in istiod's configSources.
func sourceAddress(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return "write address: xds://" + listen
	}
	return "write address: xds://HOST:" + port + ", where HOST is a name of the bridge's Service or of this machine"
}
