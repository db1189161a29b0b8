// Package demo runs the bridge between an embedded mesh and a registry, and prints what
// the bridge writes. The mesh is a real xDS server on loopback that serves the debug API
// like istiod. Everything else is the bridge as in production. The registry is in memory,
// or a real ZooKeeper or Nacos. In a ZooKeeper, the demo deletes everything that it wrote.
package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/examples"
)

// Options configure the demo.
type Options struct {
	Out  io.Writer
	Once bool // print the state when everything is in sync, and return
	JSON bool // print the state as a JSON document; requires Once

	// ZooKeeper is host:port of a real ZooKeeper, Nacos http://host:port of a real Nacos. At
	// most one may be set; both empty: a registry in memory.
	ZooKeeper string
	Nacos     string

	// Root is the parent of the interfaces, or the group in Nacos. Empty: /dubbo in memory; in
	// a real registry a path or group that no consumer reads.
	Root string

	Mesh     []byte        // a mesh file; empty: examples/mesh.yaml
	Interval time.Duration // between two steps of the mesh; 0: the interval of the mesh file
	Log      *slog.Logger  // may be nil
}

// ErrUnreachable says that the registry does not answer.
var ErrUnreachable = errors.New("does not answer")

// patience is the time limit for the first state.
const patience = 20 * time.Second

// Run runs the demo until ctx ends or, with Once, until the first state is printed. When it returns,
// no goroutine and no entry in a real registry remains.
func Run(ctx context.Context, o Options) (err error) {
	if o.JSON && !o.Once {
		return errors.New("demo: a JSON document requires --once")
	}
	if o.ZooKeeper != "" && o.Nacos != "" {
		return errors.New("demo: --zookeeper and --nacos must not both be set")
	}
	if len(o.Mesh) == 0 {
		o.Mesh = examples.Mesh()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Root = cmp.Or(o.Root, o.defaultRoot())
	m, err := parseMesh(o.Mesh)
	if err != nil {
		return err
	}
	m.Churn.Every = cmp.Or(o.Interval, m.Churn.Every)
	s, err := newEnvironment(ctx, o, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	return s.run(ctx)
}

// defaultRoot returns the default of Options.Root. In a real registry it is not where services are:
// consumers would call providers that they cannot reach.
func (o Options) defaultRoot() string {
	switch {
	case o.ZooKeeper != "":
		return "/xds-bridge-demo"
	case o.Nacos != "":
		return "xds-bridge-demo"
	}
	return "/dubbo"
}

// run runs the demo until ctx ends or, with Once, until the state is printed.
func (s *environment) run(ctx context.Context) error {
	running, cancel := context.WithCancelCause(ctx)
	wait := s.start(running, cancel)
	defer func() {
		cancel(nil)
		wait()
	}()
	if !s.options.Once {
		s.journal.open(s.options.Out)
		s.journal.print(s.header())
	}
	s.journal.happened(fmt.Sprintf("%d services", len(s.istiod.mesh.Services)))
	status, err := s.awaitSync(running)
	if err != nil {
		return err
	}
	if s.options.Once {
		return s.show(ctx, status)
	}
	s.journal.print(fmt.Sprintf("in sync: %d entries in %d groups; Ctrl-C ends", status.Owned, status.Groups))
	s.churn(running)
	return failure(running)
}

// awaitSync waits until the registry is in sync with the mesh.
func (s *environment) awaitSync(ctx context.Context) (bridge.Status, error) {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status, err := s.loop.AwaitIdle(patient)
	switch {
	case err == nil:
		return status, nil
	case failure(ctx) != nil:
		return status, failure(ctx)
	case ctx.Err() != nil:
		return status, ctx.Err()
	case s.options.ZooKeeper != "":
		return status, fmt.Errorf("demo: ZooKeeper at %s %w (%s): check --zookeeper", s.options.ZooKeeper, ErrUnreachable, status.LastError)
	case s.options.Nacos != "":
		return status, fmt.Errorf("demo: Nacos at %s %w (%s): check --nacos", s.options.Nacos, ErrUnreachable, status.LastError)
	default:
		return status, fmt.Errorf("demo: not in sync after %s: %s", patience, status.LastError)
	}
}

// failure returns why the environment ended, or nil if the user ended it.
func failure(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// churn applies the steps of the mesh, one after the other, until ctx ends.
func (s *environment) churn(ctx context.Context) {
	steps := s.istiod.mesh.Churn.Steps
	if len(steps) == 0 {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(s.istiod.mesh.Churn.Every)
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % len(steps) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.journal.happened(steps[i].String())
			s.istiod.apply(steps[i])
		}
	}
}

// State is the JSON document of --once. Its names are stable.
type State struct {
	InSync   bool                   `json:"in_sync"`
	Services []bridge.ServiceStatus `json:"services"` // of the mesh, each with its reason
	Groups   []GroupState           `json:"groups"`   // groups of the registry with entries of the bridge
}

// GroupState is one parent of the registry.
type GroupState struct {
	Path      string   `json:"path"`
	Providers []string `json:"providers"` // URLs or, in Nacos, instances, as consumers read them
}

// show prints the services of the mesh and the groups of the registry.
func (s *environment) show(ctx context.Context, status bridge.Status) error {
	state := State{InSync: status.InSync(), Services: status.Services}
	groups, err := s.journal.Groups(ctx)
	if err != nil {
		return fmt.Errorf("demo: list the registry: %w", err)
	}
	for _, g := range groups {
		held, err := s.journal.Read(ctx, g)
		if err != nil {
			return fmt.Errorf("demo: read %s: %w", g, err)
		}
		path, err := s.pathOf(g)
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		f := GroupState{Path: path}
		for _, h := range held {
			if h.Owner == status.Owner {
				f.Providers = append(f.Providers, h.Value)
			}
		}
		if len(f.Providers) > 0 {
			state.Groups = append(state.Groups, f)
		}
	}
	if !s.options.JSON {
		return s.list(state)
	}
	enc := json.NewEncoder(s.options.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(state); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

func (s *environment) list(state State) error {
	for _, f := range state.Groups {
		if _, err := fmt.Fprintln(s.options.Out, f.Path); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		for _, p := range f.Providers {
			if _, err := fmt.Fprintln(s.options.Out, "  "+p); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
		}
	}
	for _, sv := range state.Services {
		if _, err := fmt.Fprintln(s.options.Out, strings.TrimSpace(fmt.Sprintf("%s: %s %s", sv.Service, sv.Reason, sv.Detail))); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	return nil
}
