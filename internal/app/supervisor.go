package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/internal/kind"
)

// supervisor runs a runtime, and the one that each change of the configuration
// makes of it. One goroutine, that of Run, owns all but last.
type supervisor struct {
	*builder // of the runtime that runs

	program   *Program
	lifecycle *lifecycle
	server    *admin.Server
	reloads   chan reloadRequest
	abandoned map[config.TargetKey]config.Registry // where entries of ours stay without a loop

	mu   sync.Mutex
	last *admin.Reload // how the last reload went; nil before the first
}

// reloadRequest is a request to read the configuration again.
type reloadRequest chan admin.Reload

// run keeps the parts of the runtime going. What serves beside them ends last.
func (s *supervisor) run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	serving := startTask(base, s.lifecycle.failed, s.server.Run)
	defer serving.stop()
	defer s.replicas.close()
	defer s.lifecycle.close()
	s.lifecycle.apply(base, s.runtime)
	s.replicas.running.Store(&s.runtime.elections)
	look := time.NewTimer(s.interval())
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			handOver(base, s.runtime)
			return nil
		case err := <-s.lifecycle.failed:
			return err
		case x := <-s.lifecycle.handedOver:
			s.lifecycle.endReplaced(x, s.runtime)
		case request := <-s.reloads:
			request <- s.reload(base, "request")
		case <-s.program.Hangup:
			s.reload(base, "signal")
		case <-look.C:
			if s.runtime.cfg.Reload.Interval > 0 && s.file.changed() {
				s.reload(base, "file")
			}
			look.Reset(s.interval())
		}
	}
}

// interval returns how long the file is left alone between two looks.
func (s *supervisor) interval() time.Duration {
	if i := s.runtime.cfg.Reload.Interval.Std(); i > 0 {
		return lookInterval(i)
	}
	return time.Minute // whether it is looked at may change
}

// listen opens probes, metrics and the status API.
func (s *supervisor) listen(ctx context.Context) error {
	r := s.runtime
	o := admin.Options{
		Telemetry: r.cfg.Telemetry.Address, Admin: r.cfg.Admin.Address, Version: s.program.Build.Version, Owner: r.cfg.Owner,
		Metrics: r.metrics.Handler(), Log: r.log.With("component", "admin"), Events: r.events, Audit: r.audit,
		Reload: s.requestReload, Reloaded: s.lastReload, Replicas: s.replicas.statusView(), Secure: serverSecurity(r.cfg.Admin),
	}
	o.Inputs, o.Targets = r.statusView()
	server, err := admin.New(ctx, o)
	if err != nil {
		return err
	}
	r.metrics.Watch(server.Overview)
	r.metrics.Reloaded(true)
	s.server = server
	return nil
}

// ReloadWait is how long a reload may last, with one before it that still runs.
const ReloadWait = 25 * time.Second

// requestReload has the configuration read again, after a reload that still runs.
func (s *supervisor) requestReload(ctx context.Context) (admin.Reload, error) {
	ctx, cancel := context.WithTimeout(ctx, ReloadWait)
	defer cancel()
	request, reloads := make(reloadRequest, 1), s.reloads
	for {
		select {
		case reloads <- request:
			reloads = nil // once
		case r := <-request:
			return r, nil
		case <-ctx.Done():
			return admin.Reload{}, fmt.Errorf("reload: %w", ctx.Err())
		}
	}
}

func (s *supervisor) lastReload() *admin.Reload {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// serverSecurity returns how the status API is protected, nil if only this machine can
// reach it.
func serverSecurity(a config.Admin) *admin.Secure {
	if a.TLS == nil {
		return nil
	}
	return &admin.Secure{
		Certificate: func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(a.TLS.CertFile, a.TLS.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("admin.tls: %w", err)
			}
			return &pair, nil
		},
		Token: func() (string, error) {
			s, err := config.ReadSecret(a.TokenFile)
			return s.Reveal(), err
		},
	}
}

func address(a net.Addr) string {
	if a == nil {
		return "off"
	}
	return a.String()
}

// reload reads the configuration and makes the runtime what it says. A file
// that is wrong, or asks for what may not change, leaves everything as it is.
func (s *supervisor) reload(ctx context.Context, trigger string) admin.Reload {
	s.file.markRead()
	defer s.closeListeners()
	r := admin.Reload{Time: time.Now(), Trigger: trigger, Changed: []string{}, Waits: []string{}, Errors: []string{}}
	next, err := s.next(ctx)
	if err != nil {
		r.Errors = strings.Split(err.Error(), "\n")
	} else {
		r.OK, r.Changed, r.Waits = true, changes(s.runtime, next.runtime), s.waitingForRestart(next.cfg)
		before := s.runtime
		s.switchTo(ctx, next)
		s.recordAbandoned(before) // whose loops have ended
	}
	for at := range s.abandoned {
		r.Left = append(r.Left, "target "+at.String()+": no bridge leads there any more, and its entries stay; delete them with purge and a file that leads there")
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
	if _, refused := kind.FileErrors(cfg); len(refused) > 0 { // the rules that are followed now are better than none
		return nil, refused
	}
	if errs := identityErrors(ctx, s.knownConfig(), cfg); len(errs) > 0 {
		return nil, errs
	}
	connections := s.lifecycle.connections()
	next, err := s.builder.next(cfg, connections)
	if err != nil {
		return nil, err
	}
	for _, o := range next.runtime.targets {
		if o.listen == "" {
			continue
		}
		l, err := s.listeners.listen(ctx, o.listen) // while the old runtime can still continue
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
		if _, still := cfg.Registries[at.Registry]; !still {
			cfg.Registries[at.Registry] = r
		}
	}
	return &cfg
}

// recordAbandoned records the targets in which entries of ours stay without a loop. A
// process that starts with the next file does not know of them.
func (s *supervisor) recordAbandoned(before *runtime) {
	for _, o := range before.targets {
		if o.at.Listen == "" && s.runtime.target(o.at) == nil && leaves(o.loop.Summary()) {
			s.abandoned[o.at] = before.cfg.Registries[o.at.Registry]
		}
	}
	for _, o := range s.runtime.targets {
		delete(s.abandoned, o.at) // it may be back
	}
}

// leaves reports whether entries of a loop that ended may be in its target.
func leaves(st bridge.Status) bool {
	return !st.Listed || st.Owned > 0 || slices.ContainsFunc(st.Bridges, func(b bridge.BridgeStatus) bool { return b.Entries > 0 })
}

// switchTo makes the runtime of the next builder the one that runs.
func (s *supervisor) switchTo(ctx context.Context, by *builder) {
	before, next := s.runtime, by.runtime
	s.builder = by
	for id, kept := range by.newIDStores {
		id.kept.Store(kept)
	}
	announceConfig(next)
	s.lifecycle.apply(ctx, next)
	s.replicas.running.Store(&next.elections)
	for _, o := range next.targets {
		if old := before.target(o.at); old == o {
			s.tune(ctx, o)
		}
	}
	s.program.relevel(s.level, next.cfg.Log)
	inputs, targets := next.statusView()
	s.server.Show(next.cfg.Owner, inputs, targets)
	forgetMetrics(before, next)
	for name := range s.sourceTables {
		if next.source(name) == nil {
			delete(s.sourceTables, name)
		}
	}
}

// forgetMetrics drops the series of what a reload left out.
func forgetMetrics(before, next *runtime) {
	for _, name := range before.names() {
		if !slices.Contains(next.names(), name) {
			next.metrics.Forget(name)
		} else if before.source(name) != nil && next.source(name) == nil {
			next.metrics.ForgetSource(name)
		}
	}
	for _, o := range before.targets {
		if o.at.Listen != "" && next.target(o.at) == nil {
			next.metrics.ForgetListen(o.at.Registry, o.at.Listen)
		}
	}
}

// closeListeners closes the sockets at which nothing of the runtime serves, which a reload
// that was refused leaves as well.
func (s *supervisor) closeListeners() {
	s.listeners.closeOthers(func(address string) bool {
		return slices.ContainsFunc(s.runtime.targets, func(o *target) bool { return o.listen == address })
	})
}

// tune hands a loop that continues its guards and its timing, which may be new.
func (s *supervisor) tune(ctx context.Context, o *target) {
	guards := make(map[string]bridge.Guard)
	for _, x := range s.runtime.cfg.BridgesTo(o.at) {
		guards[x.Name] = guardOf(x.Guard)
	}
	if err := o.loop.Tune(ctx, guards, tuning(s.runtime.cfg, o.at)); err != nil && !errors.Is(err, bridge.ErrStopped) {
		s.runtime.log.Error("guards and timing could not be changed", "target", o.name, "err", err)
	}
}

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
		event.What, event.Why = "the configuration was refused; the one before continues", strings.Join(r.Errors, "; ")
		event.Release = "when the file is corrected: xds-bridge validate shows its errors, xds-bridge reload applies it"
		h.log.Error("configuration refused; the one before continues", "trigger", r.Trigger, "errors", r.Errors, "ends", event.Release)
	}
	h.events.Add(event)
	h.audit.Record(ctx, audit.Entry{
		Time: r.Time, Who: "reload by " + r.Trigger, Action: "reload", Owner: h.cfg.Owner,
		Count: len(r.Changed), After: strings.TrimSuffix(event.What+": "+strings.Join(r.Changed, "; "), ": "), Error: strings.Join(r.Errors, "; "),
	})
}

// waitingForRestart names the settings that differ and wait for a restart.
func (s *supervisor) waitingForRestart(after *config.Config) []string {
	before, all := s.runtime.cfg, []string{}
	for name, differs := range map[string]bool{
		"admin":      jsonOf(before.Admin) != jsonOf(after.Admin),
		"telemetry":  jsonOf(before.Telemetry) != jsonOf(after.Telemetry),
		"replicas":   jsonOf(before.Replicas) != jsonOf(after.Replicas),
		"audit":      jsonOf(before.Audit) != jsonOf(after.Audit),
		"log.format": before.Log.Format != after.Log.Format,
	} {
		if differs {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
