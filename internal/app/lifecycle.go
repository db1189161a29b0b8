package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/xds-bridge/xds-bridge/config"
)

// A component is a part of a runtime that runs: a source, a connection to a target, a
// target, an election, a key publisher or a registry identity.
type component interface {
	// run runs it until ctx ends, which is no error.
	run(ctx context.Context) error
}

// A lifecycle runs the components of a runtime, each by itself, so that one can be
// replaced while the others continue. One goroutine uses it.
type lifecycle struct {
	log        *slog.Logger
	failed     chan error // receives the first error of any component
	running    map[component]*task
	leaving    map[*targetConnection]config.TargetKey // that end once the loop of their target has brought its new connection in sync
	handover   sync.WaitGroup
	handedOver chan handover // of leaving ones whose successor is in sync
	done       chan struct{} // closed when everything ends
}

func newLifecycle(log *slog.Logger) *lifecycle {
	return &lifecycle{
		log: log, failed: make(chan error, 1), handedOver: make(chan handover), done: make(chan struct{}),
		running: make(map[component]*task), leaving: make(map[*targetConnection]config.TargetKey),
	}
}

// A handover is that of a connection to the target that is in sync in its place.
type handover struct {
	old *targetConnection
	to  *target
}

var errReconfigured = errors.New("its configuration changed, and it has not reported everything since")

// apply ends the parts that a runtime does not have, and begins those that do not run
// yet. A part continues where the one before it ended: a source fills the same table, a
// loop reads what is there. A connection that holds entries ends after its successor
// holds them.
func (l *lifecycle) apply(ctx context.Context, r *runtime) {
	for _, s := range endOthers(l, r.sources) {
		s.table.Renew(errReconfigured)
	}
	endOthers(l, r.registryIDs)
	endOthers(l, r.keyPublishers)
	for _, s := range endOthers(l, r.targets) {
		l.replace(s, r)
	}
	endOthers(l, r.elections) // others lead after the ttl
	for _, s := range r.targets {
		delete(l.leaving, s.targetConnection) // it may be in use again
		begin(ctx, l, s.targetConnection)
	}
	for _, p := range r.keyPublishers {
		p.Only(r.targetNames(p.mesh)...)
	}
	r.bindSources()
	begin(ctx, l, r.elections...)
	begin(ctx, l, r.targets...)
	begin(ctx, l, r.registryIDs...)
	begin(ctx, l, r.keyPublishers...)
	begin(ctx, l, r.sources...)
	l.awaitHandover(ctx, r)
}

// endOthers ends the components of one kind that are no longer desired, and returns them.
func endOthers[C interface {
	comparable
	component
}](l *lifecycle, keep []C) []C {
	var ended []C
	for running, t := range l.running {
		if c, ok := running.(C); ok && !slices.Contains(keep, c) {
			t.stop()
			delete(l.running, c)
			ended = append(ended, c)
		}
	}
	return ended
}

// begin starts the components that do not run yet.
func begin[C component](ctx context.Context, l *lifecycle, components ...C) {
	for _, c := range components {
		if l.running[c] == nil {
			l.running[c] = startTask(ctx, l.failed, c.run)
		}
	}
}

// stopAll ends all of one kind at the same time.
func stopAll[C component](l *lifecycle) {
	for running, t := range l.running {
		if _, ok := running.(C); ok {
			t.cancel()
		}
	}
	for running, t := range l.running {
		if _, ok := running.(C); ok {
			t.stop()
		}
	}
}

// replace ends the connection of a target that is gone, or leaves it to its successor.
func (l *lifecycle) replace(t *target, r *runtime) {
	switch {
	case r.target(t.at) != nil && r.target(t.at).targetConnection == t.targetConnection:
	case t.listen != "", // readers keep what they have and come back to its successor
		t.Persistent && r.target(t.at) == nil: // nothing goes with it, and it would look alive there
		l.end(t.targetConnection)
	default:
		l.leaving[t.targetConnection] = t.at
	}
}

// awaitHandover ends each connection that was replaced once the loop over its successor has
// nothing left to do. The connection to a target that is gone stays, for a runtime that
// leads there again: it holds entries that nobody asked to withdraw.
func (l *lifecycle) awaitHandover(ctx context.Context, r *runtime) {
	for old, at := range l.leaving {
		s := r.target(at)
		if s == nil {
			continue
		}
		l.handover.Go(func() {
			if _, err := s.loop.AwaitIdle(ctx); err != nil {
				return // it was replaced itself, or everything ends
			}
			select {
			case l.handedOver <- handover{old, s}:
			case <-l.done:
			}
		})
	}
}

// endReplaced ends a connection whose successor is in sync, unless it is in use again.
func (l *lifecycle) endReplaced(x handover, r *runtime) {
	if _, still := l.leaving[x.old]; still && slices.Contains(r.targets, x.to) {
		delete(l.leaving, x.old)
		l.end(x.old)
		l.log.Info("the connection that was replaced has ended", "target", x.old.name)
	}
}

// connections returns the connections that are up, those of before among them.
func (l *lifecycle) connections() []*targetConnection {
	var all []*targetConnection
	for running := range l.running {
		if c, ok := running.(*targetConnection); ok {
			all = append(all, c)
		}
	}
	return all
}

func (l *lifecycle) end(old *targetConnection) {
	if t := l.running[old]; t != nil {
		t.stop()
	}
	delete(l.running, old)
	old.Close()
}

// stop ends everything, in the order of the data: sources, then loops, which finish the
// calls in flight, then the connections of the targets. It deletes nothing.
func (l *lifecycle) stop() {
	stopAll[*boundSource](l)
	stopAll[*registryID](l)
	stopAll[*keyPublisher](l) // with which istiod forgets them, as it does after a kill; readers wait for their grace
	stopAll[*target](l)
	stopAll[*election](l)
	close(l.done)
	l.handover.Wait()
	stopAll[*targetConnection](l)
}

// close ends everything, and gives back what the connections hold.
func (l *lifecycle) close() {
	l.stop()
	for _, old := range l.connections() {
		old.Close()
	}
}

// A task is a component that runs.
type task struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// startTask runs something; its error is sent to failed unless another was. A panic
// ends the process, as it should.
func startTask(ctx context.Context, failed chan<- error, run func(context.Context) error) *task {
	ctx, cancel := context.WithCancel(ctx)
	t := &task{cancel: cancel}
	t.running.Go(func() {
		if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			select {
			case failed <- err:
			default:
			}
		}
	})
	return t
}

func (t *task) stop() {
	t.cancel()
	t.running.Wait()
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
