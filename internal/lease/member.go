package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Member is this replica among the others. Run must be running for it to be
// one. It is safe for concurrent use.
type Member struct {
	opts Options
	now  func() time.Time // on the clock of this replica
	poke chan struct{}    // something of our own has to be told
	left chan struct{}    // closed when we are no member any more and will not be again

	// Only the goroutine in Run touches these.
	seen     map[string]sighting
	loadedAt time.Time // when the record was last read
	beatAt   time.Time // when our entry has to be renewed
	beat     int64
	unsure   bool // a write of ours may still reach the record
	fitness  fitness

	mu      sync.Mutex
	table   table          // as it was last read or written
	until   time.Time      // until when what the table gives us may be used to write
	yielded []bool         // shards that a write of ours under way gives to another
	holding []bool         // shards in which we publish until who has a part in it is ready
	shown   []bridge.Stand // what gates were last told of
	turns   []int          // how often our part in a shard began anew
	terms   []int64        // the latest of each shard that was ever seen
	gates   []*Gate
	leaving bool
	config  string            // a word for what we are configured to write
	configs map[string]config // those of others, also of some that are gone
	joined  bool              // we stood in the record once
	lastErr error
	lost    int // how often the time of our entry ran out
}

// sighting is when the entry of another was last seen to change.
type sighting struct {
	beat int64
	at   time.Time
}

// New returns a member that holds nothing yet.
func New(o Options) (*Member, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Member{
		opts: o.withDefaults(), now: time.Now, poke: make(chan struct{}, 1), left: make(chan struct{}),
		seen: make(map[string]sighting), configs: make(map[string]config), table: newTable(o.Shards, 0),
		yielded: make([]bool, o.Shards), holding: make([]bool, o.Shards), turns: make([]int, o.Shards), terms: make([]int64, o.Shards), shown: make([]bridge.Stand, o.Shards),
	}, nil
}

// Run keeps the entry of this replica alive and takes its part of the shards
// until ctx ends. It returns nil.
func (m *Member) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	poke, changed := m.poke, m.opts.Store.Changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-poke:
		case <-changed:
		}
		rest, err := m.turn(ctx)
		timer.Reset(rest)
		poke, changed = m.poke, m.opts.Store.Changed()
		if err != nil {
			poke, changed = nil, nil // first it rests
		}
	}
}

// turn reads the record, changes it where that is due, and returns how long
// it may rest then, and whether something failed.
func (m *Member) turn(ctx context.Context) (time.Duration, error) {
	select {
	case <-m.left:
		return time.Hour, nil
	default:
	}
	m.expire(m.now()) // as for one that stood still
	err := m.exchange(ctx)
	now := m.now()
	m.expire(now)
	rest := min(m.opts.Poll, m.beatAt.Sub(now))
	switch {
	case errors.Is(err, registry.ErrConflict):
		rest = 5*time.Millisecond + rand.N(m.opts.beat()/20) //nolint:gosec // spreads load, keeps no secret
	case err != nil:
		rest = m.opts.beat() / 3
	default:
		for name, s := range m.seen {
			if name != m.opts.Identity {
				rest = min(rest, s.at.Add(m.opts.TTL).Sub(now))
			}
		}
	}
	m.report(err)
	if end := m.validUntil(); now.Before(end) {
		rest = min(rest, end.Sub(now)) // gates have to be told when our time is over
	}
	return max(rest, time.Millisecond), err
}

// exchange reads the record and writes it where something in it is ours to
// change.
func (m *Member) exchange(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.opts.beat())
	defer cancel()
	record, version, err := m.opts.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("read the record of the replicas: %w", err)
	}
	now := m.now()
	t, err := m.parsed(record, now)
	if err != nil {
		return err
	}
	if len(t.Shards) != m.opts.Shards {
		m.observe(t, now)
		if m.anybody(now) {
			return fmt.Errorf("replicas.shards: this replica is configured for %d shards, those that run have %d: end them all before the number is changed", m.opts.Shards, len(t.Shards))
		}
		m.opts.Log.Info("the number of shards was changed, nobody runs with the old one", "from", len(t.Shards), "to", m.opts.Shards)
		t = t.resized(m.opts.Shards, now.UnixMilli())
	}
	m.observe(t, now)
	m.adopt(t)
	return m.renew(ctx, t, version)
}

// parsed returns the table that a record holds. One that somebody spoiled is
// made anew, as one that was deleted is: nobody would decide anything any more.
func (m *Member) parsed(record []byte, now time.Time) (table, error) {
	anew := newTable(m.opts.Shards, now.UnixMilli())
	if len(record) == 0 {
		return anew, nil
	}
	t, err := parse(record, now)
	if errors.Is(err, errSpoiled) {
		m.opts.Log.Warn("somebody wrote over the record of the replicas; it is made anew", "err", err)
		return anew, nil
	}
	return t, err
}

// observe notes which entries changed. Where the record was out of sight for
// long, or we stood still ourselves, nothing is concluded from their silence.
func (m *Member) observe(t table, now time.Time) {
	blind := now.Sub(m.loadedAt) > 2*m.opts.beat()
	m.loadedAt = now
	for name := range m.seen {
		if _, there := t.Members[name]; !there {
			delete(m.seen, name)
		}
	}
	for name, e := range t.Members {
		if s, known := m.seen[name]; !known || blind || s.beat != e.Beat {
			m.seen[name] = sighting{e.Beat, now}
		}
	}
}

// anybody reports whether a member was seen to be alive within the ttl.
func (m *Member) anybody(now time.Time) bool {
	for _, s := range m.seen {
		if now.Sub(s.at) < m.opts.TTL {
			return true
		}
	}
	return false
}

// renew writes the record where our entry is due, or something is to be done.
func (m *Member) renew(ctx context.Context, before table, version string) error {
	next := before.clone()
	gone := m.write(&next)
	now := m.now()
	same := !gone && equal(before, next, m.opts.Identity)
	if same && now.Before(m.beatAt) && !m.unsure {
		return nil
	}
	record, err := next.encode()
	if err != nil {
		return err
	}
	m.yield(next)
	if err := m.opts.Store.Save(ctx, record, version); err != nil {
		m.unsure = m.unsure || !errors.Is(err, registry.ErrConflict)
		return fmt.Errorf("write the record of the replicas: %w", err)
	}
	m.unsure = false // whatever was under way comes too late by now
	m.beatAt = now.Add(m.opts.beat())
	m.mu.Lock()
	m.until = now.Add(m.opts.valid())
	m.joined = true
	m.mu.Unlock()
	m.observe(next, now)
	m.adopt(next)
	if gone {
		close(m.left)
	}
	return nil
}

// write puts what we know into a table, and reports whether we stand in it no
// more.
func (m *Member) write(t *table) (gone bool) {
	now := m.now()
	for name, s := range m.seen {
		if name != m.opts.Identity && now.Sub(s.at) >= m.opts.TTL {
			m.opts.Log.Warn("a replica has been silent for the ttl; its shards go to others", "replica", name, "ttl", m.opts.TTL)
			delete(t.Members, name)
		}
	}
	m.look()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beat++
	self := member{Beat: m.beat, Leaving: m.leaving, Config: m.config, Ready: make(map[int]int64)}
	for i, s := range t.Shards {
		if s.has(m.opts.Identity) && m.readyFor(i, s) {
			self.Ready[i] = s.Term
		}
	}
	self.Unfit = m.unfit(*t, self, now)
	t.Members[m.opts.Identity] = self
	t.lift(m.terms)
	t.step(m.opts.Identity)
	if m.leaving && m.mayGo(*t) {
		delete(t.Members, m.opts.Identity)
		t.step(m.opts.Identity)
		return true
	}
	return false
}

// mayGo reports whether nothing depends on us any more.
func (m *Member) mayGo(t table) bool {
	if len(t.staying()) == 0 {
		return true
	}
	for i, s := range t.Shards {
		if s.has(m.opts.Identity) || m.holding[i] && !t.covered(i) {
			return false
		}
	}
	return true
}

// adopt takes a table in as the one that holds.
func (m *Member) adopt(t table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.table
	m.table = t
	m.compare(t, m.now())
	if !m.unsure {
		clear(m.yielded)
	}
	if _, there := t.Members[m.opts.Identity]; !there {
		m.until = time.Time{}
	}
	for i, s := range t.Shards {
		has := s.has(m.opts.Identity)
		if m.begins(before.Shards[i], s) {
			m.turns[i]++
		}
		m.holding[i] = has || m.holding[i] && !t.covered(i)
		m.terms[i] = max(m.terms[i], s.Term)
	}
	m.signal()
}

// begins reports whether our part in a shard begins anew: we came to have one,
// or to decide, or decide again after another did.
func (m *Member) begins(before, now shard) bool {
	self := m.opts.Identity
	if now.Decider == self {
		return before.Decider != self || before.Term != now.Term
	}
	return now.Warm == self && before.Warm != self
}

// yield stops using, before others may learn of it, what the next table gives
// to them.
func (m *Member) yield(next table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range next.Shards {
		if m.table.Shards[i].Decider == m.opts.Identity && s.Decider != m.opts.Identity {
			m.yielded[i] = true
		}
	}
	m.signal()
}

// expire tells the gates when the time of our entry has run out.
func (m *Member) expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.until.IsZero() || now.Before(m.until) {
		return
	}
	m.until = time.Time{}
	m.lost++
	m.opts.Log.Warn("the lease could not be renewed in time; nothing is written until it is", "replica", m.opts.Identity)
	m.signal()
}

// report logs the first of several errors, and their end.
func (m *Member) report(err error) {
	if errors.Is(err, registry.ErrConflict) {
		err = nil // another was faster
	}
	m.mu.Lock()
	before := m.lastErr
	m.lastErr = err
	m.mu.Unlock()
	switch {
	case err != nil && before == nil:
		m.opts.Log.Warn("the record of the replicas is out of reach", "err", err)
	case err == nil && before != nil:
		m.opts.Log.Info("the record of the replicas is in reach again")
	}
}

func (m *Member) validUntil() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.until
}

// equal reports whether two tables differ in nothing but our beat.
func equal(a, b table, self string) bool {
	return a.Members[self].Beat != 0 && slices.Equal(a.Shards, b.Shards) &&
		maps.EqualFunc(a.Members, b.Members, func(m, n member) bool {
			return m.Leaving == n.Leaving && m.Unfit == n.Unfit && m.Config == n.Config && maps.Equal(m.Ready, n.Ready)
		})
}

// Leave hands every shard over and waits until those who take them are ready,
// so that nothing of ours is missed when our connections end. Where ctx ends
// first, or nobody else is there, it lets go at once.
func (m *Member) Leave(ctx context.Context) error {
	m.mu.Lock()
	m.leaving = true
	m.mu.Unlock()
	m.wake()
	select {
	case <-m.left:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hand over to another replica: %w", context.Cause(ctx))
	}
}

func (m *Member) wake() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}
