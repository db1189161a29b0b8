package bridge

import (
	"maps"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// What a guard counts is not how often something is removed, but how much of
// what there was is gone: an endpoint that flaps is one entry, and none while
// it is there.

// A place is where an entry is.
type place struct {
	group registry.Group
	key   string
}

// missing are the entries that were removed within a window and did not come
// back. They are never more than what the guard lets go.
type missing struct {
	since map[place]time.Time
	swept time.Time
}

// add counts a removal that is permitted.
func (m *missing) add(p place, now time.Time) {
	if m.since == nil {
		m.since = make(map[place]time.Time)
	}
	m.since[p] = now
}

// back takes in that an entry is there again.
func (m *missing) back(p place) { delete(m.since, p) }

// within returns how many there are, and forgets those from before the window,
// a little later where it is asked often.
func (m *missing) within(window time.Duration, now time.Time) int {
	if now.Sub(m.swept) >= window/128 {
		m.swept = now
		for p, at := range m.since {
			if now.Sub(at) >= window {
				delete(m.since, p)
			}
		}
	}
	return len(m.since)
}

// cameBack tells the guards of an entry that was written or is wanted again.
func (l *loop) cameBack(p place) {
	for _, b := range l.wards {
		b.missing.back(p)
	}
	l.strict.missing.back(p)
}

// removals are those of a window, in their order.
type removals []removal

type removal struct {
	at time.Time
	n  int
}

// within returns how many there were within the window, and forgets others.
func (r *removals) within(window time.Duration, now time.Time) int {
	for len(*r) > 0 && now.Sub((*r)[0].at) >= window {
		*r = (*r)[1:]
	}
	n := 0
	for _, one := range *r {
		n += one.n
	}
	return n
}

// add counts a removal. Those close to each other are counted as one, so that
// the list stays short.
func (r *removals) add(next removal, window time.Duration) {
	if n := len(*r); n > 0 && next.at.Sub((*r)[n-1].at) < window/128 {
		(*r)[n-1].n += next.n
		return
	}
	*r = append(*r, next)
}

// take counts some no more, the oldest first.
func (r *removals) take(n int) {
	for len(*r) > 0 && n > 0 {
		some := min(n, (*r)[0].n)
		n -= some
		if (*r)[0].n -= some; (*r)[0].n == 0 {
			*r = (*r)[1:]
		}
	}
}

// withdrawn is what a source withdrew within a window, in groups that other
// replicas decide, and did not bring back.
type withdrawn struct {
	all   removals
	of    map[registry.Name]removals // by service
	swept time.Time
}

// within returns how many entries that is.
func (e *withdrawn) within(window time.Duration, now time.Time) int {
	return e.all.within(window, now)
}

// changed takes in how many entries a service claims there, before and now.
func (e *withdrawn) changed(service registry.Name, before, after int, window time.Duration, now time.Time) {
	if e.of == nil {
		e.of = make(map[registry.Name]removals)
	}
	own := e.of[service]
	if lost := before - after; lost > 0 {
		e.all.add(removal{now, lost}, window)
		own.add(removal{now, lost}, window)
	} else {
		back := min(-lost, own.within(window, now))
		e.all.take(back)
		own.take(back)
	}
	e.of[service] = own
	if now.Sub(e.swept) >= window {
		e.swept = now
		maps.DeleteFunc(e.of, func(_ registry.Name, r removals) bool { return r.within(window, now) == 0 })
	}
}
