package lease

import (
	"slices"
	"time"
)

// fitness is whether a member gets ready for what it has. One that does not
// for long, as without a way to the target, gives its shards to others that
// do; it is given some again once it is ready for what it has left and a while
// has passed, which doubles each time that it fails as a decider.
type fitness struct {
	behind   map[int]lag // by shard: since when we are not ready for our part in it
	unfit    bool
	until    time.Time // it is not given any before
	failures int       // since it was ready for all that it decides
}

// lag is since when a member is not ready for a part that it has.
type lag struct {
	turn  int // of the part
	since time.Time
}

// maxDoubled bounds how often the while is doubled.
const maxDoubled = 5

// unfit reports whether others are to be preferred to us, of whom self is what
// we are about to tell. The lock is held.
func (m *Member) unfit(t table, self member, now time.Time) bool {
	f := &m.fitness
	late, decides := m.late(t, self, now), false
	for i, s := range t.Shards {
		_, ready := self.Ready[i]
		decides = decides || ready && s.Decider == m.opts.Identity
	}
	switch {
	case late && !f.unfit:
		m.opts.Log.Warn("this replica does not get ready for its shards; others that do take them: look whether it reaches every registry",
			"replica", m.opts.Identity, "for", m.opts.patience())
		f.until = now.Add(m.opts.patience() << min(f.failures, maxDoubled))
		f.failures++
		f.unfit = true
	case !late && f.unfit && !now.Before(f.until):
		m.opts.Log.Info("this replica is given shards again", "replica", m.opts.Identity)
		f.unfit = false
	case len(f.behind) == 0 && decides:
		f.failures = 0
	}
	return f.unfit
}

// late reports whether we are not ready for a part that we have had for long.
func (m *Member) late(t table, self member, now time.Time) bool {
	f := &m.fitness
	if f.behind == nil {
		f.behind = make(map[int]lag)
	}
	late := false
	for i, s := range t.Shards {
		if _, ready := self.Ready[i]; ready || !s.has(m.opts.Identity) {
			delete(f.behind, i)
			continue
		}
		if l, known := f.behind[i]; !known || l.turn != m.turns[i] {
			f.behind[i] = lag{m.turns[i], now}
		}
		late = late || now.Sub(f.behind[i].since) >= m.opts.patience()
	}
	return late
}

// look asks every loop whether it reaches its target.
func (m *Member) look() {
	m.mu.Lock()
	gates := slices.Clone(m.gates)
	m.mu.Unlock()
	for _, g := range gates {
		reached := g.reaches == nil || g.reaches()
		m.mu.Lock()
		g.reached = reached
		m.mu.Unlock()
	}
}
