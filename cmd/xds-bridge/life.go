package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// life keeps the parts of a house going, each by itself, so that a part can be
// replaced while the others go on. One goroutine uses it.
type life struct {
	log      *slog.Logger
	failed   chan error // takes the first error of any part
	sources  map[*input]*stage
	ids      map[*waypoint]*stage
	keys     map[*announcer]*stage
	loops    map[*outlet]*stage
	leases   map[*election]*stage
	links    map[*link]*stage
	leaving  map[*link]end // that end once the loop at their end has brought its new link in step
	handover sync.WaitGroup
	left     chan handover // of leaving ones, whose time has come
	over     chan struct{} // closed when everything ends
}

func newLife(log *slog.Logger) *life {
	return &life{
		log: log, failed: make(chan error, 1), left: make(chan handover), over: make(chan struct{}),
		sources: make(map[*input]*stage), ids: make(map[*waypoint]*stage), keys: make(map[*announcer]*stage),
		loops: make(map[*outlet]*stage), leases: make(map[*election]*stage),
		links: make(map[*link]*stage), leaving: make(map[*link]end),
	}
}

// A handover is that of a link to the outlet that is in step in its place.
type handover struct {
	old *link
	to  *outlet
}

var errReconfigured = errors.New("its configuration changed, and it has not told of everything since")

// become ends the parts that a house has not, and begins those that do not run
// yet. What replaces a part takes up where that left: a source fills the same
// table, a loop reads what is there, and a connection that held entries ends
// only after its successor holds them.
func (l *life) become(ctx context.Context, h *house) {
	for _, in := range endOthers(l.sources, h.inputs) {
		in.table.Renew(errReconfigured)
	}
	endOthers(l.ids, h.waypoints)
	endOthers(l.keys, h.announcers)
	for _, o := range endOthers(l.loops, h.outlets) {
		l.replaced(o, h)
	}
	endOthers(l.leases, h.elections) // others lead after the ttl
	for _, o := range h.outlets {
		delete(l.leaving, o.link) // it may have been taken up again
		if l.links[o.link] == nil {
			l.links[o.link] = begin(ctx, l.failed, o.link.parts())
		}
	}
	for _, a := range h.announcers {
		a.Only(h.ends(a.mesh)...)
	}
	for _, in := range h.inputs {
		in.current.Store(in)
		in.limit(h.cfg.Registries[in.name])
	}
	beginNew(ctx, l.failed, l.leases, h.elections)
	beginNew(ctx, l.failed, l.loops, h.outlets)
	beginNew(ctx, l.failed, l.ids, h.waypoints)
	beginNew(ctx, l.failed, l.keys, h.announcers)
	beginNew(ctx, l.failed, l.sources, h.inputs)
	l.await(ctx, h)
}

// A part is what a house keeps going.
type part interface {
	comparable
	parts() []func(context.Context) error
}

// endOthers ends what runs and is not wanted any more, and returns it.
func endOthers[P part](running map[P]*stage, wanted []P) []P {
	var ended []P
	for p, s := range running {
		if !slices.Contains(wanted, p) {
			s.end()
			delete(running, p)
			ended = append(ended, p)
		}
	}
	return ended
}

// beginNew begins what is wanted and does not run yet.
func beginNew[P part](ctx context.Context, failed chan<- error, running map[P]*stage, wanted []P) {
	for _, p := range wanted {
		if running[p] == nil {
			running[p] = begin(ctx, failed, p.parts())
		}
	}
}

// replaced decides what becomes of the link of an outlet that is gone.
func (l *life) replaced(o *outlet, h *house) {
	switch {
	case h.outlet(o.at) != nil && h.outlet(o.at).link == o.link:
	case o.listen != "", // readers keep what they have and come back to its successor
		o.lasting && h.outlet(o.at) == nil: // nothing goes with it, and it would look alive there
		l.end(o.link)
	default:
		l.leaving[o.link] = o.at
	}
}

// await ends each link that was replaced once the loop over its successor has
// nothing left to do. The link of an end that is gone stays, and is taken up by
// a house that leads there again: it holds what nobody asked to withdraw.
func (l *life) await(ctx context.Context, h *house) {
	for old, at := range l.leaving {
		o := h.outlet(at)
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

// handed ends a link whose successor is in step, unless it was taken up again.
func (l *life) handed(x handover, h *house) {
	if _, still := l.leaving[x.old]; still && slices.Contains(h.outlets, x.to) {
		delete(l.leaving, x.old)
		l.end(x.old)
		l.log.Info("the connection that was replaced has ended", "peer", x.old.name)
	}
}

// standing returns the links that are up, those of before among them.
func (l *life) standing() []*link { return slices.Collect(maps.Keys(l.links)) }

func (l *life) end(old *link) {
	if s := l.links[old]; s != nil {
		s.end()
	}
	delete(l.links, old)
	old.end()
}

// close ends everything. Each kind of part is ended after the one that feeds
// it: sources, then loops, which finish the calls under way, then the
// connections of the targets. Nothing is deleted on the way out.
func (l *life) close() {
	endAll(l.sources)
	endAll(l.ids)
	endAll(l.keys) // with which istiod forgets them, as it does after a kill; readers wait for their grace
	endAll(l.loops)
	endAll(l.leases)
	close(l.over)
	l.handover.Wait()
	endAll(l.links)
	for old := range l.links {
		old.end()
	}
}

// endAll ends stages at the same time.
func endAll[K comparable](all map[K]*stage) {
	for _, s := range all {
		s.cancel()
	}
	for _, s := range all {
		s.end()
	}
}
