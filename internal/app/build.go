package app

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
	"github.com/xds-bridge/xds-bridge/internal/operation"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// buildOptions says how a configuration is made into a runtime.
type buildOptions struct {
	dryRun        bool                // targets are read, and nothing is written
	errorsOnly    bool                // only errors are logged, unless a flag sets the level
	joinsReplicas bool                // it is one of the replicas, if several are configured
	owner         string              // in place of the configuration's; empty: that one
	adopted       *operation.OwnerSet // of the entries that a person changes, beside any bridge that runs; nil: none
}

// builder makes a runtime, from top to bottom in this file. Each change of the
// configuration has a builder of its own, which keeps the parts that did not change. It
// replaces the builder before it once its runtime runs.
type builder struct {
	*process

	cfg          *config.Config
	signer       *metadata.Signer    // nil: marks are not signed
	keysHash     string              // of the keys that it signs with
	runtime      *runtime            // that is made
	before       *runtime            // that runs meanwhile; without cfg: none does
	connections  []*targetConnection // that are up meanwhile, with those that the runtime before no longer has
	sourceTables sourceTables
	newIDStores  map[*registryID]*idKeeper // of identities that are kept: where they are read once this runtime runs
}

// A process holds what exists once and survives every reload.
type process struct {
	log       *slog.Logger
	level     *slog.LevelVar
	metrics   *metrics.Metrics
	events    *admin.Events
	audit     *audit.Log
	listeners *listeners
	file      fileWatch           // the configuration, as it was read last
	replicas  *elections          // as one of which it runs
	adopted   *operation.OwnerSet // see buildOptions
	dryRun    bool
}

// newRuntime makes the configuration that the flags name into a runtime that does
// not run yet. It connects to nobody.
func newRuntime(p *Program, o buildOptions) (*runtime, error) {
	b, err := newBuilder(p, o)
	if err != nil {
		return nil, err
	}
	return b.runtime, nil
}

// newBuilder returns a runtime with what made it.
func newBuilder(p *Program, o buildOptions) (*builder, error) {
	file := fileWatch{path: p.File}
	file.markRead() // before it is read: what it says from then on is a change
	cfg, err := p.usableConfig()
	if err != nil {
		return nil, err
	}
	cfg.Owner = cmp.Or(o.owner, cfg.Owner)
	log, level, err := p.logger(cfg.Log, o.errorsOnly)
	if err != nil {
		return nil, err
	}
	b := &builder{sourceTables: make(sourceTables), runtime: &runtime{}, process: &process{
		log: log, level: level, dryRun: o.dryRun, adopted: o.adopted, listeners: newListeners(), file: file, replicas: &elections{},
		events: &admin.Events{}, audit: audit.New(cfg.Audit.File, log),
		metrics: metrics.New(metrics.Build{Version: p.Build.Version, Revision: p.Build.Revision}),
	}}
	if o.joinsReplicas && cfg.Replicas.Shared() {
		if b.replicas, err = newElections(cfg, log); err != nil {
			return nil, cause.New(cause.Usage, err)
		}
	}
	made, err := b.next(cfg, nil)
	if err != nil {
		b.replicas.close()
		return nil, err
	}
	announceConfig(made.runtime)
	return made, nil
}

// next returns the builder of a configuration, with its runtime. It keeps the connections
// and the parts of the runtime before that depend on nothing that changed. An error leaves
// this builder as it was.
func (b *builder) next(cfg *config.Config, connections []*targetConnection) (*builder, error) {
	next := *b
	next.cfg, next.before, next.connections = cfg, b.runtime, connections
	next.sourceTables, next.newIDStores = maps.Clone(b.sourceTables), make(map[*registryID]*idKeeper)
	next.runtime = &runtime{process: b.process, cfg: cfg}
	var err error
	if next.signer, next.keysHash, err = newSigner(cfg.OwnerKeys); err != nil {
		return nil, cause.Usagef("ownerKeyFile: %w", err)
	}
	if err := next.build(); err != nil {
		next.runtime.closeBut(connections)
		return nil, cause.New(cause.Usage, err)
	}
	next.before, next.connections = nil, nil
	return &next, nil
}

// build makes the parts of the runtime: sources, key publishers, registry identities and
// targets.
func (b *builder) build() error {
	r := b.runtime
	from := distinct(b.cfg.Bridges, func(x config.Bridge) string { return x.From })
	to := distinct(b.cfg.Bridges, func(x config.Bridge) string { return x.To })
	for _, name := range from {
		s, err := b.source(name)
		if err != nil {
			return fmt.Errorf("registries.%s: %w", name, err)
		}
		r.sources = append(r.sources, s)
	}
	for _, name := range to {
		publisher := kind.Of(b.cfg.Registries[name]).Facilities().Keys
		if publisher == nil {
			continue
		}
		p, err := b.keyPublisher(name, publisher)
		if err != nil {
			return fmt.Errorf("registries.%s: %w", name, err)
		}
		r.keyPublishers = append(r.keyPublishers, p)
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(append(from, to...)))) {
		r.registryIDs = append(r.registryIDs, b.registryID(name))
	}
	for _, at := range distinct(b.cfg.Bridges, config.Bridge.Target) {
		if err := b.addTarget(at); err != nil {
			return fmt.Errorf("registries.%s: %w", at.Registry, err)
		}
	}
	return nil
}

// env returns what kinds may see of the builder. What a kind makes must not keep the runtime
// before: Predecessor finds it only while the builder builds.
func (b *builder) env() *kind.Env {
	tables, connections, r := b.sourceTables, b.connections, b.runtime
	e := &kind.Env{
		Config: b.cfg, Signer: b.signer, Metrics: b.metrics, Log: b.log, Fence: b.replicas.fence,
		OwnSession: func(registry string, session int64) bool {
			return session != 0 && slices.ContainsFunc(connections, func(c *targetConnection) bool {
				return c.Session != nil && c.name == registry && c.Session() == session
			})
		},
		Replicas: func(mesh, istiod string) *debug.Endpoints {
			if t := tables[mesh]; t != nil {
				return t.replicas(istiod)
			}
			return nil
		},
		KeyPublisher: func(mesh string) *keys.Publisher {
			if p := r.keyPublisher(mesh); p != nil {
				return p.Publisher
			}
			return nil
		},
		Predecessor: func(at config.TargetKey) *mcp.Target {
			if old := b.before.target(at); old != nil {
				return old.Served
			}
			return nil
		},
	}
	if !b.dryRun {
		e.Listen = b.listeners.listen
	}
	if b.adopted != nil {
		e.Adopted = b.adopted.Has
	}
	return e
}

// source returns the source of a registry: the one that runs if it depends on nothing
// that changed, or a new one over the same table.
func (b *builder) source(name string) (*boundSource, error) {
	part, table := sourceConfig(b.cfg, name), b.sourceTables.of(name)
	key := jsonOf(part)
	if s := b.before.source(name); s != nil && s.key == key {
		return s, nil
	}
	env := b.env()
	env.Config = part
	k := kind.Of(part.Registries[name])
	s, err := k.Source(env, name)
	if err != nil {
		return nil, err
	}
	return &boundSource{name: name, kind: k.Title(), key: key, sourceTable: table, Source: s}, nil
}

// keyPublisher returns the key publisher of a mesh: the one that runs if its settings are
// the same, or a new one.
func (b *builder) keyPublisher(name string, publisher func(*kind.Env, string) (*keys.Publisher, error)) (*keyPublisher, error) {
	p := &keyPublisher{mesh: name, key: keyPublisherKey(b.cfg, name)}
	var err error
	if p.election, err = b.join(name); err != nil {
		return nil, err
	}
	if old := b.before.keyPublisher(name); old != nil && old.key == p.key {
		return old, nil
	}
	p.Publisher, err = publisher(b.env(), name)
	return p, err
}

// join returns the election of a target, as part of the runtime; nil if this process is
// alone.
func (b *builder) join(target string) (*election, error) {
	e, err := b.replicas.election(target)
	if e != nil && !slices.Contains(b.runtime.elections, e) {
		b.runtime.elections = append(b.runtime.elections, e)
	}
	return e, err
}

// registryID returns the identity of a registry: the one of before if it depends on
// nothing that changed, or a new one.
func (b *builder) registryID(name string) *registryID {
	r := b.cfg.Registries[name]
	given := r.Settings().ID
	var kept *idKeeper
	if store := kind.Of(r).Facilities().ID; store != nil {
		kept = &idKeeper{IDStore: store}
		if !b.dryRun {
			kept.offer = cmp.Or(given, rand.Text())
		}
	}
	key := jsonOf(r.Part(config.Identity))
	if old := b.before.registryID(name); old != nil && old.key == key {
		b.newIDStores[old] = kept
		return old
	}
	id := newRegistryID(name, given, kept, b.log)
	id.key = key
	return id
}

// distinct returns a property of all bridges, each value once, in the order of the file.
func distinct[T comparable](bridges []config.Bridge, property func(config.Bridge) T) []T {
	var all []T
	seen := make(map[T]bool)
	for _, b := range bridges {
		if t := property(b); !seen[t] {
			seen[t] = true
			all = append(all, t)
		}
	}
	return all
}

// addTarget makes the target of a key and the one loop of all bridges that lead to it. A
// connection that is up, and the loop over it, are kept if they depend on nothing that
// changed.
func (b *builder) addTarget(at config.TargetKey) error {
	t := &target{at: at, formerUses: formerUses(b.before, b.cfg, at)}
	var err error
	if at.Listen == "" { // every replica serves all of what is served
		if t.election, err = b.join(at.Registry); err != nil {
			return err
		}
	}
	t.key = loopKey(b.cfg, at, t.formerUses) + b.keysHash
	key := targetConnectionKey(b.cfg, at)
	t.targetConnection = first(b.connections, func(c *targetConnection) bool { return c.name == at.String() && c.key == key })
	if old := b.before.target(at); old != nil && old.targetConnection == t.targetConnection && old.key == t.key {
		b.runtime.targets = append(b.runtime.targets, old)
		return nil
	}
	if t.targetConnection == nil {
		k := kind.Of(b.cfg.Registries[at.Registry])
		c, err := k.Connection(b.env(), at)
		if err != nil {
			return err
		}
		t.targetConnection = &targetConnection{Connection: c, name: at.String(), kind: k.Title(), listen: at.Listen, key: key}
	}
	b.runtime.targets = append(b.runtime.targets, t) // so that it is closed if something fails
	bridges := b.cfg.BridgesTo(at)
	if t.Bound, err = t.Bind(b.env(), bridges, t.formerUses); err != nil {
		return err
	}
	if t.Admitter != nil && !b.dryRun {
		t.admission = newAdmission(b, at.Registry, t.Admitter, t.Reconnected)
	}
	t.loop, err = b.loop(t, bridges)
	return err
}

func (b *builder) loop(t *target, bridges []config.Bridge) (*bridge.Loop, error) {
	owner, target := metadata.OwnerMark(b.cfg.Owner), t.Target
	if b.dryRun {
		target = &overlay{
			real: target, owner: owner, observe: logWrites(b.log.With("target", t.name)), groups: make(map[registry.Group][]registry.Stored), adopted: b.adopted,
		}
	}
	all, err := b.bridges(bridges, t.Codecs)
	if err != nil {
		return nil, err
	}
	options := tuning(b.cfg, t.at)
	options.Target, options.Owner, options.Author = t.name, owner, projection.Author(b.cfg, t.at)
	options.Log, options.Observe, options.OnEvent = b.env().TargetLogger("bridge", t.at), b.metrics.Target(t.at.Registry, t.at.Listen), b.events.Add
	if t.Owners != nil {
		options.OwnerName = t.Owners.OwnerName
	}
	if t.election != nil {
		options.Election, options.Differ = t.election.Elector, t.election.differing
	}
	l, err := bridge.New(target, all, options)
	return l, err
}

// tuning returns how the loop of a target works, which may change while it runs.
func tuning(cfg *config.Config, at config.TargetKey) bridge.Options {
	r := cfg.Registries[at.Registry]
	t := r.Timing
	return bridge.Options{
		Workers: t.Workers, Rate: float64(t.Rate), Debounce: t.Debounce.Std(), MaxDebounce: t.MaxDebounce.Std(), Refresh: t.Refresh.Std(),
		Retry:   registry.Backoff{Min: t.RetryMin.Std(), Max: t.RetryMax.Std()},
		Timeout: max(minCallTimeout, 2*r.Settings().Timeout.Std()),
	}
}

// minCallTimeout is the least time after which the loop gives a call up. The shorter timeouts
// of an adapter end it before.
const minCallTimeout = 30 * time.Second

// bridges makes the bridges of one loop; codecs are those of each.
func (b *builder) bridges(bridges []config.Bridge, codecs [][]metadata.Encoder) ([]bridge.Bridge, error) {
	all, m := make([]bridge.Bridge, 0, len(bridges)), projection.Maker{Config: b.cfg, Signer: b.signer}
	for i, x := range bridges {
		part, err := projection.PartOf(b.cfg, x)
		if err != nil {
			return nil, err
		}
		from, to := b.runtime.registryID(x.From), b.runtime.registryID(x.To)
		p, err := m.Projection(x, codecs[i], part, routeBetween(from, to))
		if err != nil {
			return nil, err
		}
		source := b.sourceTables.of(x.From)
		all = append(all, bridge.Bridge{
			Name: x.Name, Table: source.table, Part: part, Recheck: source.recheck,
			Begin:  source.untilReadable(from, to),
			Yields: projection.Yields(b.cfg, x, codecs[i]), Trace: projection.NewOriginReader(b.cfg, x, codecs[i]),
			Project: p.Entries, Policy: bridge.Policy(x.Policy), Guard: guardOf(x.Guard),
		})
	}
	return all, nil
}

func guardOf(g config.Guard) bridge.Guard {
	return bridge.Guard{
		Mode: bridge.Mode(g.Mode), Share: g.Share, AtLeast: g.AtLeast, Window: g.Window.Std(),
		LastEndpoint: g.LastEndpoint.Std(), Settle: g.Settle.Std(), Confirm: g.Confirm.Std(),
	}
}

func logWrites(log *slog.Logger) func(registry.Change) {
	return func(c registry.Change) {
		for _, w := range c.Put {
			log.Info("would write", "group", w.New.Group.String(), "key", w.New.Key)
		}
		for _, h := range c.Delete {
			log.Info("would delete", "group", h.Group.String(), "key", h.Key)
		}
	}
}

// newSigner returns a signer of marks with the keys of a file, and a hash of the keys;
// nil without a file.
func newSigner(file string) (s *metadata.Signer, keysHash string, err error) {
	if file == "" {
		return nil, "", nil
	}
	secrets, err := config.ReadKeys(file)
	if err != nil {
		return nil, "", err
	}
	raw := make([][]byte, 0, len(secrets))
	for _, k := range secrets {
		raw = append(raw, []byte(k.Reveal()))
	}
	return metadata.NewSigner(raw...), fmt.Sprintf("%x", sha256.Sum256(bytes.Join(raw, []byte("\n")))), nil
}
