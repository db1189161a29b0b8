package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
)

// reload reads the configuration and makes the runtime what it says. A file
// that is wrong, or asks for what may not change, leaves everything as it is.
func (s *supervisor) reload(ctx context.Context, trigger string) admin.Reload {
	s.builder.file.markRead()
	defer s.closeListeners()
	r := admin.Reload{Time: time.Now(), Trigger: trigger, Changed: []string{}, Waits: []string{}, Errors: []string{}}
	next, err := s.next(ctx)
	if err != nil {
		r.Errors = strings.Split(err.Error(), "\n")
	} else {
		r.OK, r.Changed, r.Waits = true, changes(s.runtime, next.runtime), s.waitingForRestart(next.cfg)
		s.noteAbandoned(next.runtime)
		s.switchTo(ctx, next)
	}
	for at := range s.abandoned {
		r.Left = append(r.Left, "target "+at.String()+": no bridge leads there any more, and its entries stay; take them back with purge and a file that leads there")
	}
	slices.Sort(r.Left)
	s.report(ctx, r)
	return r
}

// next makes the runtime that the file asks for, which does not run yet.
func (s *supervisor) next(ctx context.Context) (*builder, error) {
	cfg, err := s.program.usableConfig()
	if err != nil {
		return nil, err
	}
	if errs := identityErrors(ctx, s.knownConfig(), cfg); len(errs) > 0 {
		return nil, errs
	}
	connections := s.life.connections()
	next, err := s.builder.next(cfg, connections)
	if err != nil {
		return nil, err
	}
	for _, o := range next.runtime.sinks {
		if o.listen == "" {
			continue
		}
		l, err := s.builder.listeners.listen(ctx, o.listen) // while the old runtime can still continue
		if err != nil {
			next.runtime.closeBut(connections)
			return nil, fmt.Errorf("listen for clients: %w; change listen of the bridge", err)
		}
		_ = l.Close()
	}
	return next, nil
}

// knownConfig returns the configuration that runs, with the registries that went from
// it and in which entries of ours stay.
func (s *supervisor) knownConfig() *config.Config {
	cfg := *s.runtime.cfg
	cfg.Registries = maps.Clone(cfg.Registries)
	for at, r := range s.abandoned {
		if _, still := cfg.Registries[at.registry]; !still {
			cfg.Registries[at.registry] = r
		}
	}
	return &cfg
}

// noteAbandoned notes the targets in which entries of ours stay that no loop looks after
// any more. A process that starts with the next file does not know of them.
func (s *supervisor) noteAbandoned(next *runtime) {
	for _, o := range s.runtime.sinks {
		if o.at.listen == "" && next.sink(o.at) == nil {
			s.abandoned[o.at] = s.runtime.cfg.Registries[o.at.registry]
		}
	}
	for _, o := range next.sinks {
		delete(s.abandoned, o.at) // it may be back
	}
}

// switchTo makes the runtime of the next builder the one that runs.
func (s *supervisor) switchTo(ctx context.Context, by *builder) {
	before, next := s.runtime, by.runtime
	s.builder, s.runtime = by, next
	for id, kept := range by.newKeptIDs {
		id.setKept(kept)
	}
	next.announceConfig()
	s.life.apply(ctx, next)
	s.builder.replicas.running.Store(&next.elections)
	for _, o := range next.sinks {
		if old := before.sink(o.at); old == o {
			s.tune(ctx, o)
		}
	}
	s.program.relevel(s.builder.level, next.cfg.Log)
	inputs, targets := next.statusView()
	s.server.Show(next.cfg.Owner, inputs, targets)
	for _, name := range before.names() {
		if !slices.Contains(next.names(), name) {
			next.metrics.Forget(name)
		} else if before.source(name) != nil && next.source(name) == nil {
			next.metrics.ForgetSource(name)
		}
	}
	for name := range s.builder.sourceTables {
		if next.source(name) == nil {
			delete(s.builder.sourceTables, name)
		}
	}
}

// closeListeners closes the sockets at which nothing of the runtime serves, which a reload
// that was refused leaves as well.
func (s *supervisor) closeListeners() {
	s.builder.listeners.closeOthers(func(address string) bool {
		return slices.ContainsFunc(s.runtime.sinks, func(o *sink) bool { return o.listen == address })
	})
}

// tune hands a loop that continues its guards and its timing, which may be new.
func (s *supervisor) tune(ctx context.Context, o *sink) {
	guards := make(map[string]bridge.Guard)
	for _, x := range leadingTo(s.runtime.cfg, o.at) {
		guards[x.Name] = guard(x.Guard)
	}
	if err := o.loop.Tune(ctx, guards, tuning(s.runtime.cfg, o.at)); err != nil && !errors.Is(err, bridge.ErrStopped) {
		s.runtime.log.Error("guards and timing could not be changed", "peer", o.name, "err", err)
	}
}

// report makes known how a reload went.
func (s *supervisor) report(ctx context.Context, r admin.Reload) {
	s.mu.Lock()
	s.last = &r
	s.mu.Unlock()
	h := s.runtime
	h.metrics.Reloaded(r.OK)
	event := bridge.Event{Time: r.Time, Kind: bridge.EventReload, Who: r.Trigger, What: "the configuration was reloaded", Why: strings.Join(r.Changed, "; ")}
	if r.OK {
		h.log.Info("configuration reloaded", "trigger", r.Trigger, "changed", r.Changed, "waits_for_restart", r.Waits)
	} else {
		event.What, event.Why = "the configuration was not taken; the one before goes on", strings.Join(r.Errors, "; ")
		event.Release = "when the file is mended: xds-bridge validate shows its errors, xds-bridge reload applies it"
		h.log.Error("configuration not taken; the one before goes on", "trigger", r.Trigger, "faults", r.Errors, "ends", event.Release)
	}
	h.events.Add(event)
	h.audit.Record(ctx, audit.Entry{
		Time: r.Time, Who: "reload by " + r.Trigger, Action: "reload", Owner: h.cfg.Owner,
		Count: len(r.Changed), After: strings.TrimSuffix(event.What+": "+strings.Join(r.Changed, "; "), ": "), Error: strings.Join(r.Errors, "; "),
	})
}

// changes says what a reload begins, restarts or ends.
func changes(before, after *runtime) []string {
	all := []string{}
	add := func(part, name, how string) {
		if how != "" {
			all = append(all, part+" "+name+": "+how)
		}
	}
	for _, s := range after.sources {
		switch old := before.source(s.name); {
		case old == nil:
			add("source", s.name, "begun")
		case old != s:
			add("source", s.name, "restarted")
		case before.cfg.Registries[s.name].Settings().Limits != after.cfg.Registries[s.name].Settings().Limits:
			add("source", s.name, "limits changed")
		}
	}
	for _, s := range before.sources {
		if after.source(s.name) == nil {
			add("source", s.name, "ended")
		}
	}
	for _, s := range after.sinks {
		part, how := s.since(before, after)
		add(part, s.at.String(), how)
	}
	ended(before, after, add)
	if before.cfg.Log.Level != after.cfg.Log.Level {
		add("log", "level", after.cfg.Log.Level)
	}
	return all
}

// ended notes the targets and bridges that are gone.
func ended(before, after *runtime, add func(part, name, how string)) {
	for _, s := range before.sinks {
		if after.sink(s.at) == nil {
			how := "ended; its entries stay"
			if s.at.listen != "" {
				how = "ended; nobody is answered there any more"
			}
			add("target", s.at.String(), how)
		}
	}
	for _, s := range after.sinks {
		if before.sink(s.at) == s {
			continue
		}
		for _, u := range s.former {
			if leads(after, u.bridge) && u.isWrittenBy(before.cfg) { // now, not at a reload before
				add("bridge", u.bridge.Name, fmt.Sprintf("leaves %s; its entries there are held for approval", locationOf(before.cfg.Registries[s.at.registry], u.format)))
			}
		}
	}
	for _, x := range before.cfg.Bridges {
		if !leads(after, x) && after.sink(targetKeyOf(x)) != nil {
			add("bridge", x.Name, "leaves "+targetKeyOf(x).String()+"; its entries there are held for approval as those of "+bridgeMark(x.Name))
		}
	}
}

// isWrittenBy reports whether a bridge of that name writes the format by a configuration.
func (u formatUse) isWrittenBy(cfg *config.Config) bool {
	r := cfg.Registries[u.bridge.To]
	at := locationOf(r, u.format)
	return slices.ContainsFunc(leadingTo(cfg, targetKeyOf(u.bridge)), func(x config.Bridge) bool { return x.Name == u.bridge.Name && writes(r, x, at) })
}

// leads reports whether a bridge leads to the same target in a runtime.
func leads(r *runtime, x config.Bridge) bool {
	return slices.ContainsFunc(leadingTo(r.cfg, targetKeyOf(x)), func(o config.Bridge) bool { return o.Name == x.Name })
}

// since says which part of a sink is another than in a runtime before it.
func (s *sink) since(before, after *runtime) (part, how string) {
	switch old := before.sink(s.at); {
	case old == nil:
		return "target", "begun"
	case old.targetConnection != s.targetConnection:
		return "target", "connected anew"
	case old != s:
		return "loop", "restarted"
	case tunable(before.cfg, s.at) != tunable(after.cfg, s.at):
		return "loop", "guards and timing changed" + modes(before.cfg, after.cfg, s.at)
	}
	return "", ""
}

// modes says which guards of bridges to a target are in another mode, which is
// what nobody may wonder about afterwards.
func modes(before, after *config.Config, at targetKey) string {
	var said strings.Builder
	for _, x := range leadingTo(after, at) {
		for _, old := range leadingTo(before, at) {
			if old.Name == x.Name && old.Guard.Mode != x.Guard.Mode {
				fmt.Fprintf(&said, "; guard.mode of bridge %s: %s, before %s", x.Name, x.Guard.Mode, old.Guard.Mode)
			}
		}
	}
	return said.String()
}

// tunable returns the settings that a loop takes while it runs, as one text.
func tunable(cfg *config.Config, at targetKey) string {
	var guards []config.Guard
	for _, x := range leadingTo(cfg, at) {
		guards = append(guards, x.Guard)
	}
	return text(guards, cfg.Registries[at.registry].Timing)
}

// waitingForRestart names the settings that differ and wait for a restart.
func (s *supervisor) waitingForRestart(after *config.Config) []string {
	before, all := s.runtime.cfg, []string{}
	for name, differs := range map[string]bool{
		"admin":      text(before.Admin) != text(after.Admin),
		"telemetry":  text(before.Telemetry) != text(after.Telemetry),
		"replicas":   text(before.Replicas) != text(after.Replicas),
		"audit":      text(before.Audit) != text(after.Audit),
		"log.format": before.Log.Format != after.Log.Format,
	} {
		if differs {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
