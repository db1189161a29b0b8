// Package app is the program as a library: it makes the components of a
// configuration and runs them, and does what the commands do. It neither parses
// flags nor prints.
//
//	program.go        Program, with a method for each command
//	build.go          the builder, which makes a runtime from a configuration
//	runtime.go        the runtime, and how it runs until a command is done
//	supervisor.go     what run does: it keeps a runtime running and follows the file
//	lifecycle.go      how the parts of a runtime begin and end, one by one
//	reload.go         what a change of the file restarts, and which changes are refused
//	source.go         a source with its table
//	target.go         a target with its loop
//	admission.go      whether a target may be written to yet
//	registry_id.go    the id by which a registry is known in paths
//	election.go       which replica writes a target
//	key_publisher.go  which replica publishes the service keys of a mesh
//	listeners.go      sockets that outlive what listens at them
//	plan.go           what a dry run writes to, and the settings without effect
//	operation.go      purge, adopt and release
//
// What depends on the kind of a registry is in package kind.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	gost "github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/admin/client"
	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/internal/gostlog"
	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/internal/operation"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/internal/redact"
)

// A Program is what all commands share: the configuration that is meant, and where logs
// and remarks go.
type Program struct {
	File      string           // the configuration
	Env       config.Lookup    // the environment that it may refer to
	Build     Build            // of the binary
	LogOutput io.Writer        // where logs go
	LogLevel  string           // in place of log.level; empty: as the configuration has it
	LogFormat string           // in place of log.format; empty: as the configuration has it
	Hangup    <-chan os.Signal // has the configuration read again; nil: nothing does
	Remark    func(string)     // shows a line that is no result; nil: nobody sees it
}

func (p *Program) remark(format string, args ...any) {
	if p.Remark != nil {
		p.Remark(fmt.Sprintf(format, args...))
	}
}

// Run keeps the registries in sync until ctx ends, which is no error.
func (p *Program) Run(ctx context.Context) error {
	return p.run(ctx, buildOptions{joinsReplicas: true})
}

// DryRun is Run for somebody who watches: it writes nothing, and logs what it would write.
func (p *Program) DryRun(ctx context.Context) error { return p.run(ctx, buildOptions{dryRun: true}) }

func (p *Program) run(ctx context.Context, o buildOptions) error {
	b, err := newBuilder(p, o)
	if err != nil {
		return err
	}
	r := b.runtime
	s := &supervisor{program: p, builder: b, lifecycle: newLifecycle(r.log), reloads: make(chan reloadRequest), abandoned: make(map[config.TargetKey]config.Registry)}
	defer b.listeners.closeOthers(func(string) bool { return false })
	if err := s.listen(ctx); err != nil {
		r.close()
		return cause.New(cause.Usage, err)
	}
	if err := b.audit.Check(); err != nil {
		r.log.Error("audit.file cannot be written: decisions are in this log alone", "err", err)
	}
	r.log.Info("started", "version", p.Build.Version, "config", p.File, "registries", strings.Join(r.names(), ", "))
	r.log.Info("listening", "telemetry", address(s.server.TelemetryAddr()), "admin", address(s.server.AdminAddr()))
	err = s.run(ctx)
	if e, ok := errors.AsType[*cause.Error](err); ok {
		return cause.New(e.Kind, err)
	}
	if err != nil {
		return cause.New(cause.Findings, err)
	}
	s.runtime.log.Info("stopped", "entries", s.runtime.entriesAfter())
	return nil
}

// RunOnce brings everything in sync, and returns the status of each target then.
func (p *Program) RunOnce(ctx context.Context, timeout time.Duration) ([]bridge.Status, error) {
	r, err := newRuntime(p, buildOptions{})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if r.cfg.Replicas.Shared() {
		return nil, cause.Usagef("run --once beside replicas: it does not join their leases, and they keep the registries in sync; use run, or leave replicas.lease out where none runs")
	}
	for _, s := range r.targets {
		if s.OnceRefusal != "" {
			return nil, cause.Usagef("run --once into %s: what it wrote would go with it, since %s; use run", s.name, s.OnceRefusal)
		}
	}
	return r.complete(ctx, timeout)
}

// Plan reads every source and every target, and returns what Run would write.
func (p *Program) Plan(ctx context.Context, timeout time.Duration) (*operation.Difference, error) {
	r, err := newRuntime(p, buildOptions{dryRun: true, errorsOnly: true})
	if err != nil {
		return nil, err
	}
	defer r.close()
	p.remark("reading %s", strings.Join(r.names(), ", "))
	plans, statuses, err := r.plans(ctx, timeout)
	if err != nil {
		return nil, err
	}
	d := &operation.Difference{Changes: []operation.Step{}, Conflicts: []admin.Conflict{}, Unwritable: []operation.Remark{}, Skipped: []operation.Remark{}}
	for i := range plans {
		d.Add(r.targets[i].name, plans[i], statuses[i])
		if remark := r.targets[i].Remark; remark != "" {
			d.Remarks = append(d.Remarks, operation.Remark{What: r.targets[i].name, Reason: remark})
		}
	}
	for _, s := range r.sources {
		d.Skip(s.table.Skipped())
	}
	d.Remarks = append(d.Remarks, unmatched(r)...)
	return d, nil
}

// Preflight tries everything that Run requires of each registry.
func (p *Program) Preflight(ctx context.Context, timeout time.Duration) ([]preflight.Finding, error) {
	r, err := newRuntime(p, buildOptions{dryRun: true, errorsOnly: true})
	if err != nil {
		return nil, err
	}
	defer r.close()
	var asked []string
	for _, r := range r.registryIDs {
		asked = append(asked, r.name)
	}
	p.remark("asking %s", strings.Join(asked, ", "))
	all := preflight.Run(ctx, timeout, r.checks())
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return all, nil
}

// Client finds the running bridge by the options or by the configuration, of which only
// the address of the bridge has to be valid. A bridge of another owner does not answer.
func (p *Program) Client(o client.Options) (*client.Client, error) {
	return client.Find(p.File, p.Env, o, p.remark)
}

// Health asks a probe of the running bridge and returns its answer.
func (p *Program) Health(ctx context.Context, o client.HealthOptions) (string, error) {
	return client.Health(ctx, p.File, p.Env, o)
}

// checks returns the checks of all registries, and of the files that the process writes.
func (r *runtime) checks() []preflight.Check {
	var all []preflight.Check
	try := func(name string, role preflight.Role, f func(context.Context, *preflight.Findings)) {
		all = append(all, preflight.Check{Registry: name, Role: role, Try: f})
	}
	for _, s := range r.sources {
		try(s.name, preflight.RoleSource, s.Check)
		if from := r.cfg.Registries[s.name]; from.Settings().Mesh != nil {
			try(s.name, preflight.RoleSource, kind.CheckOtherReading(from))
		}
	}
	for _, t := range r.targets {
		try(t.at.Registry, preflight.RoleTarget, t.Check)
		if to := r.cfg.Registries[t.at.Registry]; to.Settings().Mesh != nil {
			try(t.at.Registry, preflight.RoleTarget, kind.CheckOtherWriting(to))
		}
	}
	for _, i := range r.registryIDs {
		try(i.name, preflight.RoleRegistry, i.check)
	}
	try("", preflight.RoleProcess, preflight.CheckStorage(r.cfg))
	return all
}

func (p *Program) load() (*config.Config, error) {
	cfg, err := config.Load(p.File, p.Env)
	if err != nil {
		return nil, err
	}
	return cfg, nil
}

// usableConfig returns the configuration that the flags name, or everything that
// is wrong with it. Rules that data planes do not follow affect only themselves.
func (p *Program) usableConfig() (*config.Config, error) {
	cfg, err := p.load()
	if err != nil {
		return nil, err
	}
	if errs, _ := kind.FileErrors(cfg); len(errs) > 0 {
		return nil, errs
	}
	return cfg, nil
}

// A Build says what a binary is.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Date     string `json:"date"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadBuild returns the Build of this binary. The version is what the linker set;
// empty, the build information has it.
func ReadBuild(version string) Build {
	b := Build{Version: "unknown", Go: goruntime.Version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(version, b.Version)
		return b
	}
	if b.Version = cmp.Or(version, info.Main.Version); b.Version == "" || b.Version == "(devel)" {
		b.Version = "development"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Date = s.Value
		}
	}
	return b
}

// Logger returns a logger as a configuration says, unless flags say otherwise.
func (p *Program) Logger(l config.Log) (*slog.Logger, error) {
	log, _, err := p.logger(l, false)
	return log, err
}

// logger returns the logger of the configuration, unless flags say otherwise,
// and its level, which may be changed while it is used. If errorsOnly, it logs errors
// alone.
func (p *Program) logger(l config.Log, errorsOnly bool) (*slog.Logger, *slog.LevelVar, error) { //nolint:revive // a plan logs errors alone, a run does not
	level, format := cmp.Or(p.LogLevel, l.Level), cmp.Or(p.LogFormat, l.Format)
	if errorsOnly && p.LogLevel == "" {
		level = "error" // the command prints the rest
	}
	least := new(slog.LevelVar)
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, level) || least.UnmarshalText([]byte(level)) != nil {
		return nil, nil, cause.Usagef("--log-level %q: write debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least, ReplaceAttr: inUTC}
	var lines slog.Handler
	switch format {
	case "text":
		lines = slog.NewTextHandler(p.LogOutput, options)
	case "json":
		lines = slog.NewJSONHandler(p.LogOutput, options)
	case "gost":
		gost.SetLoggerLevel(level)
		lines = gostlog.New(func() gostlog.Logger { return gost.GetLogger() }, least)
	default:
		return nil, nil, cause.Usagef("--log-format %q: write text, json or gost", format)
	}
	return slog.New(redact.Handler(lines)), least, nil
}

// relevel makes the level what the configuration says by now, unless flags say
// otherwise.
func (p *Program) relevel(least *slog.LevelVar, l config.Log) {
	level := cmp.Or(p.LogLevel, l.Level)
	if least.UnmarshalText([]byte(level)) == nil && cmp.Or(p.LogFormat, l.Format) == "gost" {
		gost.SetLoggerLevel(level)
	}
}

// inUTC writes times as RFC 3339 with milliseconds, in UTC.
func inUTC(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.String(slog.TimeKey, a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	}
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().Round(time.Microsecond).String())
	}
	return a
}
