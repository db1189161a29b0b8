package app

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// buildOptions says how a configuration is made into a runtime.
type buildOptions struct {
	dryRun        bool      // targets are read, and nothing is written
	quiet         bool      // only errors are logged, unless a flag says otherwise
	joinsReplicas bool      // it takes its part among replicas, where there are to be several
	owner         string    // in place of the configuration's; empty: that one
	adopted       *ownerSet // entries are changed by a person's word, beside any bridge that runs; nil: they are not
}

// builder makes a runtime. The one after each change of the configuration is made
// by a builder of its own, which takes over what did not change, and takes the
// place of the one before it once its runtime runs. This package knows every
// adapter; nothing else does.
type builder struct {
	*process

	cfg          *config.Config
	signer       *metadata.Signer        // nil: marks are not signed
	keysHash     string                  // which keys it signs with, as a text that changes with them
	runtime      *runtime                // that is being made
	before       *runtime                // that runs while this one is made; nil: none does
	connections  []*targetConnection     // that are up while it is made, also such as the runtime before has no more
	sourceTables map[string]*sourceTable // of the registries that are read
	newKeptIDs   map[*registryID]*keptID // for ids that continue: how they are asked for once this runtime runs
}

// A process is what there is once, whatever a reload changes.
type process struct {
	log       *slog.Logger
	level     *slog.LevelVar
	metrics   *metrics.Metrics
	events    *admin.Events
	audit     *audit.Log
	listeners *listeners
	file      fileWatch  // the configuration, as it was read last
	replicas  *elections // as one of which it runs
	adopted   *ownerSet  // see buildOptions
	dryRun    bool
}

// runtime makes the configuration that the flags name into a runtime that does
// not run yet. It connects to nobody.
func (p *Program) runtime(o buildOptions) (*runtime, error) {
	b, err := p.newBuilder(o)
	if err != nil {
		return nil, err
	}
	return b.runtime, nil
}

// newBuilder returns a runtime with what made it.
func (p *Program) newBuilder(o buildOptions) (*builder, error) {
	file := fileWatch{path: p.File}
	file.markRead() // before it is read: what it says from then on is a change
	cfg, err := p.usableConfig()
	if err != nil {
		return nil, err
	}
	cfg.Owner = cmp.Or(o.owner, cfg.Owner)
	log, level, err := p.logger(cfg.Log, o.quiet)
	if err != nil {
		return nil, err
	}
	b := &builder{sourceTables: make(map[string]*sourceTable), process: &process{
		log: log, level: level, dryRun: o.dryRun, adopted: o.adopted, listeners: newListeners(), file: file, replicas: &elections{},
		events: &admin.Events{}, audit: audit.New(cfg.Audit.File, log),
		metrics: metrics.New(metrics.Build{Version: p.Build.Version, Revision: p.Build.Revision}),
	}}
	if o.joinsReplicas && cfg.Replicas.Shared() {
		if b.replicas, err = b.newElections(cfg); err != nil {
			return nil, &Error{CauseUsage, err}
		}
	}
	made, err := b.next(cfg, nil)
	if err != nil {
		b.replicas.close()
		return nil, err
	}
	made.runtime.announceConfig()
	return made, nil
}

// load reads the configuration.
func (p *Program) load() (*config.Config, error) {
	cfg, err := config.Load(p.File, p.Env)
	if err != nil {
		return nil, err //nolint:wrapcheck // faults say file and line themselves
	}
	return cfg, nil
}

// usableConfig returns the configuration that the flags name, or everything that
// is wrong with it.
func (p *Program) usableConfig() (*config.Config, error) {
	cfg, err := p.load()
	if err != nil {
		return nil, err
	}
	if errs := append(CheckFiles(cfg), Unsupported(cfg)...); len(errs) > 0 {
		return nil, errs
	}
	return cfg, nil
}

// next returns what made a configuration into a runtime. The parts of the runtime
// before it that depend on nothing that changed are parts of the new one as they
// are, and connections that stand are taken up. One that cannot be made leaves this
// builder as it was.
func (b *builder) next(cfg *config.Config, connections []*targetConnection) (*builder, error) {
	next := *b
	next.cfg, next.before, next.connections = cfg, b.runtime, connections
	next.sourceTables, next.newKeptIDs = maps.Clone(b.sourceTables), make(map[*registryID]*keptID)
	next.runtime = &runtime{process: b.process, cfg: cfg}
	var err error
	if next.signer, next.keysHash, err = signer(cfg.OwnerKeys); err != nil {
		return nil, usage("ownerKeyFile: %w", err)
	}
	if err := next.build(); err != nil {
		next.runtime.closeBut(connections)
		return nil, &Error{CauseUsage, err}
	}
	next.before, next.connections = nil, nil
	return &next, nil
}

// build makes one source for every registry that a bridge reads, and one
// sink for every target that one writes to.
func (b *builder) build() error {
	for _, name := range distinct(b.cfg.Bridges, func(x config.Bridge) string { return x.From }) {
		s, err := b.sourceFor(name)
		if err != nil {
			return fmt.Errorf("registries.%s: %w", name, err)
		}
		b.runtime.sources = append(b.runtime.sources, s)
	}
	if err := b.addKeyPublishers(); err != nil {
		return err
	}
	for _, name := range b.registryNames() {
		b.runtime.registryIDs = append(b.runtime.registryIDs, b.registryIDFor(name))
	}
	for _, at := range distinct(b.cfg.Bridges, targetKeyOf) {
		if err := b.addSink(at); err != nil {
			return fmt.Errorf("registries.%s: %w", at.registry, err)
		}
	}
	return nil
}

// sourceFor returns the source of a registry: the one that runs where it depends
// on nothing that changed, or a new one over the same table.
func (b *builder) sourceFor(name string) (*boundSource, error) {
	of := sourceConfig(b.cfg, name)
	key := text(of)
	if b.before != nil {
		if s := b.before.source(name); s != nil && s.key == key {
			return s, nil
		}
	}
	part := *b
	part.cfg = of
	s, err := part.kind(name).source(&part, name)
	if err != nil {
		return nil, err
	}
	s.key, s.sourceTable = key, b.sourceTable(name)
	return s, nil
}

// distinct returns what bridges name, each once, in the order of the file.
func distinct[T comparable](bridges []config.Bridge, what func(config.Bridge) T) []T {
	var all []T
	seen := make(map[T]bool)
	for _, b := range bridges {
		if t := what(b); !seen[t] {
			seen[t] = true
			all = append(all, t)
		}
	}
	return all
}

// addSink makes the target of a key and the one loop of all bridges that lead
// to it. A connection that is there, and the loop over it, stay where they depend
// on nothing that changed.
func (b *builder) addSink(at targetKey) error {
	s := &sink{at: at}
	if at.listen == "" { // what is served is served whole by every replica
		var err error
		if s.election, err = b.joinElection(at.registry); err != nil {
			return err
		}
	}
	var old *sink
	if b.before != nil {
		old = b.before.sink(at)
	}
	s.former = b.former(at, old)
	s.key = loopKey(b.cfg, at, s.former) + b.keysHash
	key := targetConnectionKey(b.cfg, at)
	s.targetConnection = first(b.connections, func(c *targetConnection) bool { return c.name == at.String() && c.key == key })
	if old != nil && old.targetConnection == s.targetConnection && old.key == s.key {
		b.runtime.sinks = append(b.runtime.sinks, old)
		return nil
	}
	if s.targetConnection == nil {
		c, err := b.kind(at.registry).connection(b, at)
		if err != nil {
			return err
		}
		c.key, s.targetConnection = key, c
	}
	b.runtime.sinks = append(b.runtime.sinks, s) // so that it is closed whatever comes
	bridges := leadingTo(b.cfg, at)
	var err error
	if s.boundTarget, err = s.bind(b, bridges, s.former); err != nil {
		return err
	}
	s.loop, err = b.makeLoop(s, bridges)
	return err
}

// makeLoop makes the loop of a sink.
func (b *builder) makeLoop(s *sink, bridges []config.Bridge) (*bridge.Loop, error) {
	owner, target := metadata.OwnerMark(b.cfg.Owner), s.target
	if b.dryRun {
		target = &overlay{real: target, owner: owner, observe: b.wouldWrite(s.name), groups: make(map[registry.Group][]registry.Held), adopted: b.adopted}
	}
	all, err := b.bridges(bridges, s.codecs)
	if err != nil {
		return nil, err
	}
	options := b.tuning(s.at)
	options.Target, options.Owner = s.name, owner
	options.Log = b.log.With("component", "bridge", "peer", s.name)
	if s.election != nil {
		options.Election, options.Differ = s.election.Elector, s.election.differing
	}
	options.Author = b.author(s.at)
	options.Observe, options.OnEvent = b.metrics.Target(s.name, s.kind), b.events.Add
	l, err := bridge.New(target, all, options)
	return l, err //nolint:wrapcheck // build names the registry
}

// tuning returns how the loop of a target goes about its work, which may change
// while it runs.
func (b *builder) tuning(at targetKey) bridge.Options {
	r := b.cfg.Registries[at.registry]
	t := r.Timing
	return bridge.Options{
		Workers: t.Workers, Rate: float64(t.Rate), Quiet: t.Quiet.Std(), MaxQuiet: t.MaxQuiet.Std(), Refresh: t.Refresh.Std(),
		Retry:   registry.Backoff{Min: t.RetryMin.Std(), Max: t.RetryMax.Std()},
		Timeout: max(minCall, 2*r.Settings().Timeout.Std()),
	}
}

// minCall is what a call to a target may take at least before the loop gives
// it up: the adapter's own, shorter times come first.
const minCall = 30 * time.Second

// bridges makes the bridges of one loop; codecs are those of each.
func (b *builder) bridges(bridges []config.Bridge, codecs [][]metadata.Encoder) ([]bridge.Bridge, error) {
	all := make([]bridge.Bridge, 0, len(bridges))
	for i, x := range bridges {
		from, to := b.registryID(x.From), b.registryID(x.To)
		p, err := b.projection(x, codecs[i])
		if err != nil {
			return nil, err
		}
		all = append(all, bridge.Bridge{
			Name: x.Name, Table: b.sourceTable(x.From).table, Recheck: b.sourceTable(x.From).recheck,
			Begin: b.sourceTable(x.From).untilReadable(from, to), Yields: b.yields(x, codecs[i]), Trace: b.originReader(x, codecs[i]),
			Project: p.Entries, Policy: bridge.Policy(x.Policy), Guard: guard(x.Guard),
		})
	}
	return all, nil
}

// yields returns what recognises the entries of a bridge whose protocol is a guess; nil
// where none is.
func (b *builder) yields(x config.Bridge, codecs []metadata.Encoder) func(registry.Entry) bool {
	if b.kind(x.From).abilities().mesh == nil {
		return nil // other registries say it
	}
	return func(e registry.Entry) bool {
		return slices.ContainsFunc(codecs, func(c metadata.Encoder) bool {
			z, ok := c.(*dubbo.ZooKeeper)
			return ok && z.Guessed(e)
		})
	}
}

// leadingTo returns the bridges to a target, in the order of the file.
func leadingTo(cfg *config.Config, at targetKey) []config.Bridge {
	return slices.DeleteFunc(slices.Clone(cfg.Bridges), func(x config.Bridge) bool { return targetKeyOf(x) != at })
}

func guard(g config.Guard) bridge.Guard {
	return bridge.Guard{
		Mode: bridge.Mode(g.Mode), Share: g.Share, AtLeast: g.AtLeast, Window: g.Window.Std(),
		LastEndpoint: g.LastEndpoint.Std(), Settle: g.Settle.Std(), Confirm: g.Confirm.Std(),
	}
}

// wouldWrite logs what a dry run does not write.
func (b *builder) wouldWrite(name string) func(registry.Change) {
	log := b.log.With("peer", name)
	return func(c registry.Change) {
		for _, w := range c.Put {
			log.Info("would write", "group", w.New.Group.String(), "key", w.New.Key)
		}
		for _, h := range c.Delete {
			log.Info("would delete", "group", h.Group.String(), "key", h.Key)
		}
	}
}

// patterns reads patterns that the configuration has been validated for.
func patterns(texts []string) ([]naming.Pattern, error) {
	all := make([]naming.Pattern, 0, len(texts))
	for _, text := range texts {
		p, err := naming.ParsePattern(text)
		if err != nil {
			return nil, err //nolint:wrapcheck // it names kind and text
		}
		all = append(all, p)
	}
	return all, nil
}
