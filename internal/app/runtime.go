package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
)

// runtime is a configuration made into things that run. The parts of a runtime
// that a reload does not touch go over into the next one as they are.
type runtime struct {
	cfg           *config.Config
	owner         string
	sources       []*boundSource
	sinks         []*sink
	registryIDs   []*registryID
	keyPublishers []*keyPublisher
	elections     []*election
	log           *slog.Logger
	metrics       *metrics.Metrics
	events        *admin.Events
	audit         *audit.Log
}

// close gives back what the runtime holds, after it ran or in place of it.
func (h *runtime) close() { h.closeBut(nil) }

// closeBut gives back what the runtime holds, but for connections that stand without it.
func (h *runtime) closeBut(standing []*targetConnection) {
	for _, o := range h.sinks {
		if !slices.Contains(standing, o.targetConnection) {
			o.close()
		}
	}
}

// sink returns the sink at an end, nil where there is none.
func (h *runtime) sink(at sinkKey) *sink {
	return first(h.sinks, func(o *sink) bool { return o.at == at })
}

// source returns the source of a registry, nil where there is none.
func (h *runtime) source(name string) *boundSource {
	return first(h.sources, func(in *boundSource) bool { return in.name == name })
}

// first returns the first that fits, nil where none does.
func first[T any](all []*T, fits func(*T) bool) *T {
	if i := slices.IndexFunc(all, fits); i >= 0 {
		return all[i]
	}
	return nil
}

// during keeps a part of the runtime going for as long as work takes. The
// timeout ends work alone: the runtime is still there to say what was missing.
func (h *runtime) during(ctx context.Context, timeout time.Duration, loops []func(context.Context) error, work func(context.Context) error) error {
	ctx, worked := context.WithCancel(ctx)
	defer worked()
	timed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var result error
	failed := h.runTasks(ctx, loops, func(context.Context) error {
		defer worked()
		result = work(timed)
		return nil
	})
	return errors.Join(failed, result)
}

// runTasks runs sources, loops and connections. Each group is ended after the
// one that feeds it: sources, then loops, which finish the calls under way,
// then the connections of the targets. Nothing is deleted on the way out.
func (h *runtime) runTasks(ctx context.Context, loops []func(context.Context) error, work func(context.Context) error) error {
	base := context.WithoutCancel(ctx)
	failed := make(chan error, 1)
	running := []*tasks{
		startTasks(base, failed, append(h.connectionTasks(), work)),
		startTasks(base, failed, loops),
		startTasks(base, failed, h.sourceTasks()),
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	for _, s := range slices.Backward(running) {
		s.stop()
	}
	return err
}

func (h *runtime) connectionTasks() []func(context.Context) error {
	var all []func(context.Context) error
	for _, o := range h.sinks {
		all = append(all, o.targetConnection.tasks()...)
	}
	return all
}

func (h *runtime) loopTasks() []func(context.Context) error {
	var all []func(context.Context) error
	for _, o := range h.sinks {
		all = append(all, o.tasks()...)
	}
	return all
}

func (h *runtime) sourceTasks() []func(context.Context) error {
	var all []func(context.Context) error
	for _, in := range h.sources {
		all = append(all, in.tasks()...)
	}
	for _, w := range h.registryIDs {
		all = append(all, w.tasks()...)
	}
	for _, a := range h.keyPublishers {
		all = append(all, a.tasks()...)
	}
	return all
}

// tasks returns what runs while the registry is on the way of an entry.
func (w *registryID) tasks() []func(context.Context) error {
	return []func(context.Context) error{named("id of "+w.name, w.run)}
}

// names returns what the runtime speaks to, each once.
func (h *runtime) names() []string {
	var names []string
	for _, in := range h.sources {
		names = append(names, in.name)
	}
	for _, o := range h.sinks {
		if !slices.Contains(names, o.name) {
			names = append(names, o.name)
		}
	}
	return names
}

func named(name string, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
}

// tasks is a number of things that run and are ended together.
type tasks struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// startTasks runs all of them; the first error of any is sent to failed. A panic
// ends the process, as it should.
func startTasks(ctx context.Context, failed chan<- error, all []func(context.Context) error) *tasks {
	ctx, cancel := context.WithCancel(ctx)
	s := &tasks{cancel: cancel}
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

func (s *tasks) stop() {
	s.cancel()
	s.running.Wait()
}
