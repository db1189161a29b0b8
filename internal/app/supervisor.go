package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
)

// supervisor runs a runtime, and the one that each change of the configuration
// makes of it. One goroutine, that of Run, owns all but last.
type supervisor struct {
	program   *Program
	builder   *builder
	runtime   *runtime
	life      *lifecycle
	server    *admin.Server
	reloads   chan reloadRequest
	abandoned map[targetKey]config.Registry // where entries stay that no loop looks after any more

	mu   sync.Mutex
	last *admin.Reload // how the last reload went; nil before the first
}

// reloadRequest is a request to read the configuration again.
type reloadRequest chan admin.Reload

// Run keeps the registries in sync until ctx ends, which is no error.
func (p *Program) Run(ctx context.Context) error {
	return p.run(ctx, buildOptions{joinsReplicas: true})
}

// DryRun is Run for somebody who watches: it writes nothing, and logs what it would write.
func (p *Program) DryRun(ctx context.Context) error { return p.run(ctx, buildOptions{dryRun: true}) }

func (p *Program) run(ctx context.Context, o buildOptions) error {
	b, err := p.newBuilder(o) //nolint:contextcheck // connections outlive what makes them
	if err != nil {
		return err
	}
	r := b.runtime
	s := &supervisor{program: p, builder: b, runtime: r, life: newLifecycle(r.log), reloads: make(chan reloadRequest), abandoned: make(map[targetKey]config.Registry)}
	defer b.listeners.closeOthers(func(string) bool { return false })
	if err := s.listen(ctx); err != nil {
		r.close()
		return &Error{CauseUsage, err}
	}
	r.log.Info("started", "version", p.Build.Version, "config", p.File, "peers", strings.Join(r.names(), ", "))
	r.log.Info("listening", "telemetry", address(s.server.TelemetryAddr()), "admin", address(s.server.AdminAddr()))
	err = s.run(ctx)
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{e.Cause, err}
	}
	if err != nil {
		return &Error{CauseFindings, err}
	}
	s.runtime.log.Info("stopped", "entries", s.runtime.entriesAfter())
	return nil
}

// entriesAfter says what becomes of entries once the process has ended.
func (r *runtime) entriesAfter() string {
	var goes []string
	for _, s := range r.sinks {
		if !s.lasting && s.listen == "" {
			goes = append(goes, s.name)
		}
	}
	if len(goes) == 0 {
		return "every entry stays as it is"
	}
	return "entries in " + strings.Join(goes, ", ") + " go with the connection, unless another replica publishes them; all others stay"
}

// run keeps the parts of the runtime going. What serves beside them ends last.
func (s *supervisor) run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	serving := startTask(base, s.life.failed, s.server.Run)
	defer serving.stop()
	defer s.builder.replicas.close()
	defer s.life.close()
	s.life.apply(base, s.runtime)
	s.builder.replicas.running.Store(&s.runtime.elections)
	look := time.NewTimer(s.interval())
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			s.runtime.handOver(base)
			return nil
		case err := <-s.life.failed:
			return err
		case x := <-s.life.handedOver:
			s.life.endReplaced(x, s.runtime)
		case request := <-s.reloads:
			request <- s.reload(base, "request")
		case <-s.program.Hangup:
			s.reload(base, "signal")
		case <-look.C:
			if s.runtime.cfg.Reload.Interval > 0 && s.builder.file.changed() {
				s.reload(base, "file")
			}
			look.Reset(s.interval())
		}
	}
}

// interval returns how long the file is left alone between two looks.
func (s *supervisor) interval() time.Duration {
	if i := s.runtime.cfg.Reload.Interval.Std(); i > 0 {
		return i
	}
	return time.Minute // whether it is looked at may change
}

// listen opens probes, metrics and the status API.
func (s *supervisor) listen(ctx context.Context) error {
	r := s.runtime
	o := admin.Options{
		Telemetry: r.cfg.Telemetry.Address, Admin: r.cfg.Admin.Address, Version: s.program.Build.Version, Owner: r.cfg.Owner,
		Metrics: r.metrics.Handler(), Log: r.log.With("component", "admin"), Events: r.events, Audit: r.audit,
		Reload: s.requestReload, Reloaded: s.lastReload, Replicas: s.builder.replicas.statusView(), Secure: serverSecurity(r.cfg.Admin),
	}
	o.Inputs, o.Targets = r.statusView()
	server, err := admin.New(ctx, o)
	if err != nil {
		return err //nolint:wrapcheck // it names the setting
	}
	r.metrics.Watch(server.Overview)
	r.metrics.Reloaded(true)
	s.server = server
	return nil
}

// statusView returns what the status API reports.
func (r *runtime) statusView() (inputs []admin.Input, targets []admin.Target) {
	for _, s := range r.sources {
		inputs = append(inputs, admin.Input{Name: s.name, Kind: s.kind, Table: s.table, State: s.state})
	}
	for _, t := range r.sinks {
		target := admin.Target{Name: t.name, Kind: t.kind, Loop: t.loop, State: t.state}
		if t.admission != nil {
			target.State, target.Refused = t.stateWithAdmission, t.admission.refusal
		}
		targets = append(targets, target)
	}
	return inputs, targets
}

// ReloadWait is how long a reload may take, one that is under way before it included.
const ReloadWait = 25 * time.Second

// requestReload has the configuration read again, after a reload that is under way.
func (s *supervisor) requestReload(ctx context.Context) (admin.Reload, error) {
	ctx, cancel := context.WithTimeout(ctx, ReloadWait)
	defer cancel()
	request := make(reloadRequest, 1)
	select {
	case s.reloads <- request:
	case <-ctx.Done():
		return admin.Reload{}, fmt.Errorf("reload: %w", ctx.Err())
	}
	select {
	case r := <-request:
		return r, nil
	case <-ctx.Done():
		return admin.Reload{}, fmt.Errorf("reload: %w", ctx.Err())
	}
}

func (s *supervisor) lastReload() *admin.Reload {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func address(a net.Addr) string {
	if a == nil {
		return "off"
	}
	return a.String()
}

// fileWatch is a file whose content may change. It is read by its name each
// time, so that links to another file, as Kubernetes renews a ConfigMap by,
// are followed.
type fileWatch struct {
	path      string
	used      [sha256.Size]byte // what was taken last, whatever came of it
	candidate [sha256.Size]byte // what was seen last
}

// markRead notes that the file was read as it is now.
func (w *fileWatch) markRead() {
	w.used, _ = w.sum()
	w.candidate = w.used
}

// changed reports whether the file holds something that was not taken yet and
// is the same as at the look before: a file that is being written is left
// alone. One that cannot be read has not changed.
func (w *fileWatch) changed() bool {
	now, ok := w.sum()
	if !ok {
		return false
	}
	still := now == w.candidate
	w.candidate = now
	return still && now != w.used
}

func (w *fileWatch) sum() (sum [sha256.Size]byte, ok bool) {
	content, err := config.ReadFile(w.path)
	if err != nil {
		return sum, false
	}
	return sha256.Sum256(content), true
}
