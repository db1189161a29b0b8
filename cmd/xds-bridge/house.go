package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
	"github.com/xds-bridge/xds-bridge/registry"
)

// house is a configuration made into things that run.
type house struct {
	owner            string
	telemetry, admin string // addresses; off for none
	inputs           []input
	outlets          []outlet
	log              *slog.Logger
	metrics          *metrics.Metrics
	events           *admin.Events
	audit            *audit.Log
}

// input is one source with its table. It runs once, however many bridges
// read it.
type input struct {
	name, kind string
	table      *registry.Table
	source     registry.Source
	state      func() admin.SourceState
	recheck    func() // asks for a fresh reading
	check      func(context.Context, *findings)
}

// outlet is one target with the loop of all bridges that lead to it.
type outlet struct {
	name, kind string
	target     registry.Target
	loop       *bridge.Loop
	serve      func(context.Context) error // keeps the target reachable; nil where nothing has to
	check      func(context.Context, *findings)
	state      func() admin.TargetState // nil where it has nothing to tell
	fault      func() string            // why the target cannot be reached; empty where it can
	close      func()                   // nil where nothing is held
	back       <-chan struct{}          // ready after a lost connection is back, and others may have changed things meanwhile
}

// close gives back what the house holds, after it ran or in place of it.
func (h *house) close() {
	for _, o := range h.outlets {
		if o.close != nil {
			o.close()
		}
	}
}

// input returns the input of a name.
func (h *house) input(name string) input {
	i := slices.IndexFunc(h.inputs, func(in input) bool { return in.name == name })
	return h.inputs[i]
}

// run keeps everything going until ctx ends or a part cannot go on, and
// returns after all of it has ended. What serves beside it ends last.
func (h *house) run(ctx context.Context, serve ...func(context.Context) error) error {
	return h.stages(ctx, h.loops(), serve)
}

// during keeps a part of the house going for as long as work takes, at most
// until the timeout, of which it tells work.
func (h *house) during(ctx context.Context, timeout time.Duration, loops []func(context.Context) error, work func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var result error
	failed := h.stages(ctx, loops, []func(context.Context) error{func(context.Context) error {
		defer cancel()
		result = work(ctx)
		return nil
	}})
	return errors.Join(failed, result)
}

// stages runs sources, loops and connections. Each stage is ended after the
// one that feeds it: sources, then loops, which finish the calls under way,
// then the connections of the targets. Nothing is deleted on the way out.
func (h *house) stages(ctx context.Context, loops, serve []func(context.Context) error) error {
	base := context.WithoutCancel(ctx)
	failed := make(chan error, 1)
	running := []*stage{
		begin(base, failed, slices.Concat(h.connections(), serve)),
		begin(base, failed, loops),
		begin(base, failed, h.sources()),
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	for _, s := range slices.Backward(running) {
		s.end()
	}
	return err
}

func (h *house) connections() []func(context.Context) error {
	var all []func(context.Context) error
	for _, o := range h.outlets {
		if o.serve != nil {
			all = append(all, named("target "+o.name, o.serve))
		}
	}
	return all
}

func (h *house) loops() []func(context.Context) error {
	all := make([]func(context.Context) error, 0, len(h.outlets))
	for _, o := range h.outlets {
		all = append(all, named("loop of "+o.name, o.loop.Run))
		if o.back != nil {
			all = append(all, o.rescan)
		}
	}
	return all
}

// rescan makes the loop read everything again whenever a connection is back.
func (o outlet) rescan(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.back:
		}
		if err := o.loop.Resync(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("target %s: %w", o.name, err)
		}
	}
}

func (h *house) sources() []func(context.Context) error {
	all := make([]func(context.Context) error, 0, len(h.inputs))
	for _, in := range h.inputs {
		all = append(all, named("source "+in.name, func(ctx context.Context) error {
			return in.source.Run(ctx, in.table)
		}))
	}
	return all
}

// peers names what the house speaks to.
func (h *house) peers() string {
	var names []string
	for _, in := range h.inputs {
		names = append(names, in.name)
	}
	for _, o := range h.outlets {
		if !slices.Contains(names, o.name) {
			names = append(names, o.name)
		}
	}
	return strings.Join(names, ", ")
}

func named(name string, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
}

// stage is a number of things that run and are ended together.
type stage struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// begin runs all of them; the first error of any is sent to failed. A panic
// ends the process, as it should.
func begin(ctx context.Context, failed chan<- error, all []func(context.Context) error) *stage {
	ctx, cancel := context.WithCancel(ctx)
	s := &stage{cancel: cancel}
	for _, run := range all {
		s.running.Go(func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	return s
}

func (s *stage) end() {
	s.cancel()
	s.running.Wait()
}
