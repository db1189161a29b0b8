package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
)

// life keeps the parts of a house going, each by itself, so that a part can be
// replaced while the others go on. One goroutine uses it.
type life struct {
	log      *slog.Logger
	failed   chan error // takes the first error of any part
	sources  map[*input]*stage
	ids      map[*waypoint]*stage
	loops    map[*outlet]*stage
	links    map[*link]*stage
	leaving  map[*link]end // that end once the loop at their end has brought its new link in step
	handover sync.WaitGroup
	left     chan *link    // of leaving ones, whose time has come
	over     chan struct{} // closed when everything ends
}

func newLife(log *slog.Logger) *life {
	return &life{
		log: log, failed: make(chan error, 1), left: make(chan *link), over: make(chan struct{}),
		sources: make(map[*input]*stage), ids: make(map[*waypoint]*stage), loops: make(map[*outlet]*stage),
		links: make(map[*link]*stage), leaving: make(map[*link]end),
	}
}

var errReconfigured = errors.New("its configuration changed, and it has not told of everything since")

// become ends the parts that a house has not, and begins those that do not run
// yet. What replaces a part takes up where that left: a source fills the same
// table, a loop reads what is there, and a connection that held entries ends
// only after its successor holds them.
func (l *life) become(ctx context.Context, h *house) {
	l.leave(h)
	for _, o := range h.outlets {
		if l.links[o.link] == nil {
			l.links[o.link] = begin(ctx, l.failed, o.link.parts())
		}
		if l.loops[o] == nil {
			l.loops[o] = begin(ctx, l.failed, o.parts())
		}
	}
	for _, w := range h.waypoints {
		if l.ids[w] == nil {
			l.ids[w] = begin(ctx, l.failed, w.parts())
		}
	}
	for _, in := range h.inputs {
		in.current.Store(in)
		in.limit(h.cfg.Registries[in.name])
		if l.sources[in] == nil {
			l.sources[in] = begin(ctx, l.failed, in.parts())
		}
	}
	l.await(ctx, h)
}

// leave ends the sources and loops that a house has not.
func (l *life) leave(h *house) {
	for in, s := range l.sources {
		if first(h.inputs, func(o *input) bool { return o == in }) == nil {
			s.end()
			delete(l.sources, in)
			in.table.Renew(errReconfigured)
		}
	}
	for w, s := range l.ids {
		if first(h.waypoints, func(o *waypoint) bool { return o == w }) == nil {
			s.end()
			delete(l.ids, w)
		}
	}
	for o, s := range l.loops {
		if first(h.outlets, func(other *outlet) bool { return other == o }) == nil {
			s.end()
			delete(l.loops, o)
			l.replaced(o, h)
		}
	}
}

// replaced decides what becomes of the link of an outlet that is gone.
func (l *life) replaced(o *outlet, h *house) {
	switch {
	case h.has(o.link):
	case o.listen != "": // readers keep what they have and come back to its successor
		l.end(o.link)
	default:
		l.leaving[o.link] = o.at
	}
}

// await ends each link that was replaced once the loop over its successor has
// nothing left to do. The link of an end that is gone stays: it holds what
// nobody asked to withdraw.
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
			case l.left <- old:
			case <-l.over:
			}
		})
	}
}

// handed ends a link whose successor is in step.
func (l *life) handed(old *link) {
	if _, still := l.leaving[old]; still {
		delete(l.leaving, old)
		l.end(old)
		l.log.Info("the connection that was replaced has ended", "peer", old.name)
	}
}

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
	endAll(l.loops)
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
