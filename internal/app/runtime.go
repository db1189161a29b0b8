package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
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

// boundSource is one source with its table. It runs once, however many bridges
// read it.
type boundSource struct {
	name, kind string
	key        string // of all that the source depends on
	*sourceTable
	source registry.Source
	state  func() admin.SourceState
	again  func() // asks for a fresh reading
	check  func(context.Context, *findings)
}

// targetConnection is the connection to a target. It outlives loops: what is over it
// depends on bridges as well, the connection on the registry alone.
type targetConnection struct {
	name, kind string
	key        string                      // of all that the connection depends on
	listen     string                      // the address at which it serves; empty where it connects
	serve      func(context.Context) error // keeps the target reachable; nil where nothing has to
	state      func() admin.TargetState    // nil where it has nothing to tell
	fault      func() string               // why the target cannot be reached; empty where it can
	close      func()                      // nil where nothing is held
	session    func() int64                // of ZooKeeper; nil elsewhere
	lasting    bool                        // entries outlive the connection
	note       string                      // what a plan has to say of it; empty: nothing
	back       <-chan struct{}             // ready after a lost connection or a right to write is back, and others may have changed things meanwhile

	// over makes the target that the connection leads to, for the bridges of
	// a loop. It looks at former places as well, and nothing is written there.
	over func(b *builder, bridges []config.Bridge, former []use) (*boundTarget, error)
}

// boundTarget is a target over a connection, and what goes with it.
type boundTarget struct {
	target  registry.Target
	codecs  [][]metadata.Encoder // of each bridge
	check   func(context.Context, *findings)
	beside  func(context.Context) error // runs beside the loop; nil where nothing has to
	entry   *admission                  // whether it may write; nil where it always may
	bridges []string                    // what identifies the bridges that lead there
}

// sink is one target with the loop of all bridges that lead to it.
type sink struct {
	*targetConnection
	*boundTarget
	at       sinkKey
	key      string // of all that the loop depends on beside the connection
	loop     *bridge.Loop
	former   []use     // places that bridges wrote and write no more
	election *election // nil where every replica writes, or there is but one
}

// close gives back what the runtime holds, after it ran or in place of it.
func (h *runtime) close() { h.closeBut(nil) }

// closeBut gives back what the runtime holds, but for connections that stand without it.
func (h *runtime) closeBut(standing []*targetConnection) {
	for _, o := range h.sinks {
		if !slices.Contains(standing, o.targetConnection) {
			o.end()
		}
	}
}

func (l *targetConnection) end() {
	if l.close != nil {
		l.close()
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

// tasks returns what runs while the connection is wanted.
func (l *targetConnection) tasks() []func(context.Context) error {
	if l.serve == nil {
		return nil
	}
	return []func(context.Context) error{named("target "+l.name, l.serve)}
}

// tasks returns what runs while the target is written to.
func (o *sink) tasks() []func(context.Context) error {
	o.election.attach(o.targetConnection)
	all := []func(context.Context) error{named("loop of "+o.name, o.loop.Run)}
	if o.back != nil {
		all = append(all, o.rescan)
	}
	if o.beside != nil {
		all = append(all, named("target "+o.name, o.beside))
	}
	if o.election != nil {
		all = append(all, o.agree)
	}
	return all
}

// tasks returns what runs while the source is read.
func (in *boundSource) tasks() []func(context.Context) error {
	return []func(context.Context) error{named("source "+in.name, func(ctx context.Context) error {
		return in.source.Run(ctx, in.table)
	})}
}

// tasks returns what runs while the registry is on the way of an entry.
func (w *registryID) tasks() []func(context.Context) error {
	return []func(context.Context) error{named("id of "+w.name, w.run)}
}

// rescan makes the loop read everything again whenever a connection is back.
func (o *sink) rescan(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.back:
		}
		if err := o.resync(ctx); err != nil {
			return err
		}
	}
}

// agree makes the loop read everything again once all replicas are configured
// alike: what it kept because another one may claim it may go by then.
func (o *sink) agree(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for differed := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		before := differed
		differed = o.election.differing()
		switch {
		case differed == before, differed == unread:
		case differed != "":
			o.election.log.Warn("replicas differ", "reason", differed)
		case before != unread: // while the record was not read, nothing was kept
			if err := o.resync(ctx); err != nil {
				return err
			}
		}
	}
}

// resync makes the loop read everything again.
func (o *sink) resync(ctx context.Context) error {
	if err := o.loop.Resync(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, bridge.ErrStopped) {
		return fmt.Errorf("target %s: %w", o.name, err)
	}
	return nil
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
