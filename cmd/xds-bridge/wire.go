package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// wiring says how a configuration is made into a house.
type wiring struct {
	dryRun bool   // targets are read, and nothing is written
	quiet  bool   // only warnings are logged
	owner  string // in place of the configuration's; empty: that one
}

// builder makes a house. This file and those named wire_ know every adapter;
// nothing else does.
type builder struct {
	cfg     *config.Config
	log     *slog.Logger
	metrics *metrics.Metrics
	signer  *metadata.Signer // nil: marks are not signed
	dryRun  bool
	house   *house
	istiods map[string]*debug.Endpoints // of a mesh that is read: its istiod's, as its own mesh tells them
}

// house makes the configuration that the flags name into a house that does
// not run yet. It connects to nobody.
func (c *cli) house(w wiring) (*house, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	if faults := append(cfg.CheckFiles(), unsupported(cfg)...); len(faults) > 0 {
		return nil, faults
	}
	cfg.Owner = orWord(w.owner, cfg.Owner)
	log, err := c.logger(cfg.Log, w.quiet)
	if err != nil {
		return nil, err
	}
	signs, err := signer(cfg.OwnerKeys)
	if err != nil {
		return nil, usage("ownerKeyFile: %w", err)
	}
	v := thisBuild()
	b := &builder{
		signer: signs,
		cfg:    cfg, log: log, dryRun: w.dryRun, istiods: make(map[string]*debug.Endpoints),
		metrics: metrics.New(metrics.Build{Version: v.Version, Revision: v.Revision}),
	}
	b.house = &house{
		owner: cfg.Owner, telemetry: cfg.Telemetry.Address, admin: cfg.Admin.Address, log: log, metrics: b.metrics,
		events: &admin.Events{}, audit: audit.New(cfg.Audit.File, log),
	}
	if err := b.build(); err != nil {
		b.house.close()
		return nil, exit{exitUsage, err}
	}
	return b.house, nil
}

// build makes one input for every registry that a bridge reads, and one
// outlet for every end that one writes to.
func (b *builder) build() error {
	for _, name := range distinct(b.cfg.Bridges, func(x config.Bridge) string { return x.From }) {
		in, err := b.input(name, b.cfg.Registries[name])
		if err != nil {
			return fmt.Errorf("registries.%s: %w", name, err)
		}
		b.house.inputs = append(b.house.inputs, in)
	}
	for _, at := range distinct(b.cfg.Bridges, endOf) {
		if err := b.outlet(at); err != nil {
			return fmt.Errorf("registries.%s: %w", at.registry, err)
		}
	}
	return nil
}

// An end is what one loop writes to: a registry, or one address at which a
// mesh is served. Bridges that name the same one wait for each other there.
type end struct{ registry, listen string }

func endOf(x config.Bridge) end { return end{x.To, x.Listen} }

func (e end) String() string {
	if e.listen == "" {
		return e.registry
	}
	return e.registry + e.listen
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

// input makes the source of a registry. A new kind of source has its line
// here.
func (b *builder) input(name string, r config.Registry) (input, error) {
	switch {
	case r.Istiod != nil:
		return b.mesh(name, r.Istiod)
	case r.ZooKeeper != nil:
		return b.zookeeperSource(name, r.ZooKeeper)
	case r.Nacos != nil:
		return b.nacosSource(name, r.Nacos)
	default:
		return input{}, errNoSource // validation told of it before
	}
}

// target makes the target at an end, and the codecs of the bridges that lead
// to it. A new kind of target has its line here.
func (b *builder) target(at end, bridges []config.Bridge) (outlet, [][]codec, error) {
	switch r := b.cfg.Registries[at.registry]; {
	case r.ZooKeeper != nil:
		return b.zookeeper(at.registry, r.ZooKeeper, bridges)
	case r.Nacos != nil:
		return b.nacos(at.registry, r.Nacos, bridges)
	case r.Istiod != nil:
		return b.served(at, r.Istiod, bridges)
	default:
		return outlet{}, nil, errNoTarget // validation told of it before
	}
}

// outlet makes the target at an end and the one loop of all bridges that lead
// to it.
func (b *builder) outlet(at end) error {
	bridges := b.leadingTo(at)
	o, codecs, err := b.target(at, bridges)
	if err != nil {
		return err
	}
	b.house.outlets = append(b.house.outlets, o) // so that it is closed whatever comes
	owner := metadata.Fingerprint(b.cfg.Owner, metadata.OwnerLen)
	target := o.target
	if b.dryRun {
		target = &overlay{real: target, owner: owner, told: b.wouldWrite(o.name), groups: make(map[registry.Group][]registry.Held)}
	}
	ways, err := b.ways(bridges, codecs)
	if err != nil {
		return err
	}
	t := b.cfg.Registries[at.registry].Timing
	o.loop, err = bridge.New(target, ways, bridge.Options{
		Target: o.name, Owner: owner, Workers: t.Workers,
		Quiet: t.Quiet.Std(), MaxQuiet: t.MaxQuiet.Std(), Refresh: t.Refresh.Std(),
		Retry:   bridge.Backoff{Min: t.RetryMin.Std(), Max: t.RetryMax.Std()},
		Timeout: max(minCall, 2*callTimeout(b.cfg.Registries[at.registry])),
		Log:     b.log.With("component", "bridge", "peer", o.name),
		Observe: b.metrics.Target(o.name, o.kind),
		Tell:    b.house.events.Add,
	})
	b.house.outlets[len(b.house.outlets)-1] = o
	return err //nolint:wrapcheck // build names the registry
}

// minCall is what a call to a target may take at least before the loop gives
// it up: the adapter's own, shorter times come first.
const minCall = 30 * time.Second

// callTimeout returns how long one call to a registry may take by its own
// setting; 0 where it has none.
func callTimeout(r config.Registry) time.Duration {
	if r.ZooKeeper != nil {
		return r.ZooKeeper.Timeout.Std()
	}
	return 0
}

// codec is what turns services into the entries of one format of one bridge.
type codec interface {
	Encode(s *registry.Service) ([]registry.Entry, error)
	LeftOut(s *registry.Service) error
}

// leadingTo returns the bridges to an end, in the order of the file.
func (b *builder) leadingTo(at end) []config.Bridge {
	var all []config.Bridge
	for _, x := range b.cfg.Bridges {
		if endOf(x) == at {
			all = append(all, x)
		}
	}
	return all
}

// ways makes the bridges of one loop; codecs are those of each.
func (b *builder) ways(bridges []config.Bridge, codecs [][]codec) ([]bridge.Bridge, error) {
	all := make([]bridge.Bridge, 0, len(bridges))
	for i, x := range bridges {
		in := b.house.input(x.From)
		chosen, err := b.selection(x)
		if err != nil {
			return nil, err
		}
		all = append(all, bridge.Bridge{
			Name: x.Name, Table: in.table, Recheck: in.recheck,
			Select: chosen, Project: project(b.reach(x), b.signerFor(x), b.inFormats(x, codecs[i])),
			Policy: bridge.Policy(x.Policy), Guard: guard(x.Guard),
		})
	}
	return all, nil
}

// hop is what a registry is in the path of an entry.
func (b *builder) hop(name string) string {
	id := ""
	switch r := b.cfg.Registries[name]; {
	case r.Istiod != nil:
		id = r.Istiod.ID
	case r.ZooKeeper != nil:
		id = r.ZooKeeper.ID
	case r.Nacos != nil:
		id = r.Nacos.ID
	}
	return metadata.Hop(orWord(id, name))
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

// listeners opens probes, metrics and the status API of a house.
func listeners(ctx context.Context, h *house) (*admin.Server, error) {
	o := admin.Options{
		Telemetry: h.telemetry, Admin: h.admin, Version: thisBuild().Version, Owner: h.owner,
		Metrics: h.metrics.Handler(), Log: h.log.With("component", "admin"), Events: h.events, Audit: h.audit,
	}
	for _, in := range h.inputs {
		o.Inputs = append(o.Inputs, admin.Input{Name: in.name, Kind: in.kind, Table: in.table, State: in.state})
	}
	for _, t := range h.outlets {
		o.Targets = append(o.Targets, admin.Target{Name: t.name, Kind: t.kind, Loop: t.loop, State: t.state})
	}
	s, err := admin.New(ctx, o)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the setting
	}
	h.metrics.Watch(s.Document)
	return s, nil
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
