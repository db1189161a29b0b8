package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
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
	dryRun  bool
	house   *house
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
	v := thisBuild()
	b := &builder{
		cfg: cfg, log: log, dryRun: w.dryRun,
		metrics: metrics.New(metrics.Build{Version: v.Version, Revision: v.Revision}),
	}
	b.house = &house{owner: cfg.Owner, telemetry: cfg.Telemetry.Address, admin: cfg.Admin.Address, log: log, metrics: b.metrics}
	if err := b.build(); err != nil {
		b.house.close()
		return nil, exit{exitUsage, err}
	}
	return b.house, nil
}

// build makes one input for every registry that a bridge reads, and one
// outlet for every registry that one writes.
func (b *builder) build() error {
	for _, name := range order(b.cfg.Bridges, func(x config.Bridge) string { return x.From }) {
		in, err := b.input(name, b.cfg.Registries[name])
		if err != nil {
			return fmt.Errorf("registries.%s: %w", name, err)
		}
		b.house.inputs = append(b.house.inputs, in)
	}
	for _, name := range order(b.cfg.Bridges, func(x config.Bridge) string { return x.To }) {
		if err := b.outlet(name, b.cfg.Registries[name]); err != nil {
			return fmt.Errorf("registries.%s: %w", name, err)
		}
	}
	return nil
}

// order returns the registries that bridges name, each once, in the order of
// the file.
func order(bridges []config.Bridge, end func(config.Bridge) string) []string {
	var names []string
	seen := make(map[string]bool)
	for _, b := range bridges {
		if name := end(b); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// input makes the source of a registry. A new kind of source has its line
// here.
func (b *builder) input(name string, r config.Registry) (input, error) {
	switch {
	case r.Istiod != nil:
		return b.mesh(name, r.Istiod)
	default:
		return input{}, errNoSource // unsupported told of it before
	}
}

// outlet makes the target of a registry and the one loop of all bridges that
// lead to it. A new kind of target has its line here.
func (b *builder) outlet(name string, r config.Registry) error {
	bridges := b.leadingTo(name)
	var o outlet
	var codecs []codec // of the formats of all bridges
	var err error
	switch {
	case r.ZooKeeper != nil:
		o, codecs, err = b.zookeeper(name, r.ZooKeeper, bridges)
	case r.Nacos != nil:
		o, codecs, err = b.nacos(name, r.Nacos, bridges)
	default:
		err = errNoTarget // unsupported told of it before
	}
	if err != nil {
		return err
	}
	b.house.outlets = append(b.house.outlets, o) // so that it is closed whatever comes
	owner := metadata.Fingerprint(b.cfg.Owner, metadata.OwnerLen)
	target := o.target
	if b.dryRun {
		target = &overlay{real: target, owner: owner, told: b.wouldWrite(name), groups: make(map[registry.Group][]registry.Held)}
	}
	ways, err := b.ways(bridges, codecs)
	if err != nil {
		return err
	}
	t := r.Timing
	o.loop, err = bridge.New(target, ways, bridge.Options{
		Target: name, Owner: owner, Workers: t.Workers,
		Quiet: t.Quiet.Std(), MaxQuiet: t.MaxQuiet.Std(), Refresh: t.Refresh.Std(),
		Retry:   bridge.Backoff{Min: t.RetryMin.Std(), Max: t.RetryMax.Std()},
		Log:     b.log.With("component", "bridge", "peer", name),
		Observe: b.metrics.Target(name, o.kind),
	})
	b.house.outlets[len(b.house.outlets)-1] = o
	return err //nolint:wrapcheck // build names the registry
}

// codec is what turns services into the entries of one format of one bridge.
type codec interface {
	Encode(s *registry.Service) ([]registry.Entry, error)
}

// leadingTo returns the bridges into a registry, in the order of the file.
func (b *builder) leadingTo(name string) []config.Bridge {
	var all []config.Bridge
	for _, x := range b.cfg.Bridges {
		if x.To == name {
			all = append(all, x)
		}
	}
	return all
}

// ways makes the bridges of one loop; codecs are those of all their formats,
// one after the other.
func (b *builder) ways(bridges []config.Bridge, codecs []codec) ([]bridge.Bridge, error) {
	all := make([]bridge.Bridge, 0, len(bridges))
	for _, x := range bridges {
		own := codecs[:len(x.Formats)]
		codecs = codecs[len(x.Formats):]
		in := b.house.input(x.From)
		chosen, err := selection(x.Select)
		if err != nil {
			return nil, err
		}
		all = append(all, bridge.Bridge{
			Name: x.Name, Table: in.table, Recheck: in.recheck,
			Select: chosen, Project: project(own),
			Policy: bridge.Policy(x.Policy), Guard: guard(x.Guard),
		})
	}
	return all, nil
}

func guard(g config.Guard) bridge.Guard {
	return bridge.Guard{
		Mode: bridge.Mode(g.Mode), Share: g.Share, AtLeast: g.AtLeast, Window: g.Window.Std(),
		LastEndpoint: g.LastEndpoint.Std(), Settle: g.Settle.Std(), Confirm: g.Confirm.Std(),
	}
}

// project encodes a service in all formats of a bridge. One format that
// cannot leaves the service as it is in all of them.
func project(codecs []codec) bridge.Project {
	return func(s *registry.Service) ([]registry.Entry, error) {
		var all []registry.Entry
		for _, c := range codecs {
			entries, err := c.Encode(s)
			if err != nil {
				return nil, err //nolint:wrapcheck // the codec says which part
			}
			all = append(all, entries...)
		}
		return all, nil
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
		Metrics: h.metrics.Handler(), Log: h.log.With("component", "admin"),
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
