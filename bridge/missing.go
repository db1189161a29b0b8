package bridge

import (
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A source whose full readings differ in turns, such as two istiods that do
// not know the same, must not have entries come and go. What a reading does
// not show settles; once something that was missing came back, the next that
// is missing settles for twice as long as that was away.

// A place is where an entry is.
type place struct {
	group registry.Group
	key   string
}

// missing are the entries that full readings did not show, within a window,
// and that did not come back.
type missing struct {
	since map[place]time.Time
	swept time.Time
	away  time.Duration // twice how long something was that came back
	until time.Time     // when that is forgotten
}

// add takes in that an entry is missing.
func (m *missing) add(p place, window time.Duration, now time.Time) {
	if m.since == nil {
		m.since = make(map[place]time.Time)
	}
	m.since[p] = now
	if now.Sub(m.swept) < window {
		return
	}
	m.swept = now
	for p, at := range m.since {
		if now.Sub(at) >= window {
			delete(m.since, p)
		}
	}
}

// back takes in that an entry is there again.
func (m *missing) back(p place, window time.Duration, now time.Time) {
	at, was := m.since[p]
	if !was {
		return
	}
	delete(m.since, p)
	if now.Sub(at) < window {
		m.away, m.until = min(window, max(2*now.Sub(at), m.settle(0, now))), now.Add(window)
	}
}

// settle returns how long what is missing has to settle.
func (m *missing) settle(least time.Duration, now time.Time) time.Duration {
	if now.Before(m.until) {
		return max(least, m.away)
	}
	return least
}

// cameBack tells the guards of an entry that was written or is wanted again.
func (l *loop) cameBack(p place, now time.Time) {
	for _, b := range l.wards {
		b.missing.back(p, b.guard.Window, now)
	}
}
