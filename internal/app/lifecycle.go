package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// lifecycle keeps the parts of a runtime going, each by itself, so that a part can be
// replaced while the others go on. One goroutine uses it.
type lifecycle struct {
	log      *slog.Logger
	failed   chan error // takes the first error of any part
	sources  map[*boundSource]*tasks
	ids      map[*registryID]*tasks
	keys     map[*keyPublisher]*tasks
	loops    map[*sink]*tasks
	leases   map[*election]*tasks
	links    map[*targetConnection]*tasks
	leaving  map[*targetConnection]sinkKey // that end once the loop at their end has brought its new connection in step
	handover sync.WaitGroup
	left     chan handover // of leaving ones, whose time has come
	over     chan struct{} // closed when everything ends
}

func newLifecycle(log *slog.Logger) *lifecycle {
	return &lifecycle{
		log: log, failed: make(chan error, 1), left: make(chan handover), over: make(chan struct{}),
		sources: make(map[*boundSource]*tasks), ids: make(map[*registryID]*tasks), keys: make(map[*keyPublisher]*tasks),
		loops: make(map[*sink]*tasks), leases: make(map[*election]*tasks),
		links: make(map[*targetConnection]*tasks), leaving: make(map[*targetConnection]sinkKey),
	}
}

// A handover is that of a connection to the sink that is in step in its place.
type handover struct {
	old *targetConnection
	to  *sink
}

var errReconfigured = errors.New("its configuration changed, and it has not told of everything since")

// apply ends the parts that a runtime has not, and begins those that do not run
// yet. What replaces a part takes up where that left: a source fills the same
// table, a loop reads what is there, and a connection that held entries ends
// only after its successor holds them.
func (l *lifecycle) apply(ctx context.Context, h *runtime) {
	for _, in := range endOthers(l.sources, h.sources) {
		in.table.Renew(errReconfigured)
	}
	endOthers(l.ids, h.registryIDs)
	endOthers(l.keys, h.keyPublishers)
	for _, o := range endOthers(l.loops, h.sinks) {
		l.replaced(o, h)
	}
	endOthers(l.leases, h.elections) // others lead after the ttl
	for _, o := range h.sinks {
		delete(l.leaving, o.targetConnection) // it may have been taken up again
		if l.links[o.targetConnection] == nil {
			l.links[o.targetConnection] = startTasks(ctx, l.failed, o.targetConnection.tasks())
		}
	}
	for _, a := range h.keyPublishers {
		a.Only(h.ends(a.mesh)...)
	}
	for _, in := range h.sources {
		in.current.Store(in)
		in.limit(h.cfg.Registries[in.name])
	}
	beginNew(ctx, l.failed, l.leases, h.elections)
	beginNew(ctx, l.failed, l.loops, h.sinks)
	beginNew(ctx, l.failed, l.ids, h.registryIDs)
	beginNew(ctx, l.failed, l.keys, h.keyPublishers)
	beginNew(ctx, l.failed, l.sources, h.sources)
	l.await(ctx, h)
}

// A component is what a runtime keeps going.
type component interface {
	comparable
	tasks() []func(context.Context) error
}

// endOthers ends what runs and is not wanted any more, and returns it.
func endOthers[P component](running map[P]*tasks, wanted []P) []P {
	var ended []P
	for p, s := range running {
		if !slices.Contains(wanted, p) {
			s.stop()
			delete(running, p)
			ended = append(ended, p)
		}
	}
	return ended
}

// beginNew begins what is wanted and does not run yet.
func beginNew[P component](ctx context.Context, failed chan<- error, running map[P]*tasks, wanted []P) {
	for _, p := range wanted {
		if running[p] == nil {
			running[p] = startTasks(ctx, failed, p.tasks())
		}
	}
}

// replaced decides what becomes of the connection of a sink that is gone.
func (l *lifecycle) replaced(o *sink, h *runtime) {
	switch {
	case h.sink(o.at) != nil && h.sink(o.at).targetConnection == o.targetConnection:
	case o.listen != "", // readers keep what they have and come back to its successor
		o.lasting && h.sink(o.at) == nil: // nothing goes with it, and it would look alive there
		l.end(o.targetConnection)
	default:
		l.leaving[o.targetConnection] = o.at
	}
}

// await ends each connection that was replaced once the loop over its successor has
// nothing left to do. The connection of an end that is gone stays, and is taken up by
// a runtime that leads there again: it holds what nobody asked to withdraw.
func (l *lifecycle) await(ctx context.Context, h *runtime) {
	for old, at := range l.leaving {
		o := h.sink(at)
		if o == nil {
			continue
		}
		l.handover.Go(func() {
			if _, err := o.loop.Settled(ctx); err != nil {
				return // it was replaced itself, or everything ends
			}
			select {
			case l.left <- handover{old, o}:
			case <-l.over:
			}
		})
	}
}

// handed ends a connection whose successor is in step, unless it was taken up again.
func (l *lifecycle) handed(x handover, h *runtime) {
	if _, still := l.leaving[x.old]; still && slices.Contains(h.sinks, x.to) {
		delete(l.leaving, x.old)
		l.end(x.old)
		l.log.Info("the connection that was replaced has ended", "peer", x.old.name)
	}
}

// standing returns the connections that are up, those of before among them.
func (l *lifecycle) standing() []*targetConnection { return slices.Collect(maps.Keys(l.links)) }

func (l *lifecycle) end(old *targetConnection) {
	if s := l.links[old]; s != nil {
		s.stop()
	}
	delete(l.links, old)
	old.close()
}

// close ends everything. Each kind of part is ended after the one that feeds
// it: sources, then loops, which finish the calls under way, then the
// connections of the targets. Nothing is deleted on the way out.
func (l *lifecycle) close() {
	endAll(l.sources)
	endAll(l.ids)
	endAll(l.keys) // with which istiod forgets them, as it does after a kill; readers wait for their grace
	endAll(l.loops)
	endAll(l.leases)
	close(l.over)
	l.handover.Wait()
	endAll(l.links)
	for old := range l.links {
		old.close()
	}
}

// endAll ends stages at the same time.
func endAll[K comparable](all map[K]*tasks) {
	for _, s := range all {
		s.cancel()
	}
	for _, s := range all {
		s.stop()
	}
}
