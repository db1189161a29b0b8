package lease

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An Elector takes part in the election of the leader of one target while Run
// runs. It implements bridge.Election, and is safe for concurrent use.
type Elector struct {
	opts    Options
	now     func() time.Time
	poke    chan struct{} // this replica has something to tell the others
	changed chan struct{} // the leadership is another
	left    chan struct{} // closed once this replica is no member any more

	// Only the goroutine in Run touches these.
	seen     map[string]sighting
	loadedAt time.Time // when the record was last read
	renewAt  time.Time // when our entry has to be renewed
	beat     int64
	unsure   bool      // a write of ours may still reach the record
	unready  time.Time // since when this leader is not ready; zero: it is, or does not lead
	patience time.Duration

	mu      sync.Mutex
	record  record            // as it was last read or written
	highest int64             // of all terms that were ever seen
	until   time.Time         // until when the leadership that the record gives us may be used
	yielded bool              // a write under way makes another the leader
	shown   bridge.Leadership // as the loop was last told
	done    bridge.Leadership // the loop was last ready for
	other   config            // of the replica that was last seen to be configured otherwise
	config  string            // of this one
	leaving bool
	joined  bool // it stood in the record once
	lost    int  // how often the time of its entry ran out
	lastErr error
}

// sighting is when the entry of a replica was last seen to change, and after
// what time without a change it is dead.
type sighting struct {
	beat int64
	at   time.Time
	ttl  time.Duration
}

// New returns an elector that leads nothing yet.
func New(o Options) (*Elector, error) {
	if o.Store == nil || o.Identity == "" {
		return nil, errors.New("an elector needs a store and an identity")
	}
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return nil, fmt.Errorf("ttl: %s is not between %s and %s", o.TTL, MinTTL, MaxTTL)
	}
	if o.Poll = min(cmp.Or(max(o.Poll, 0), o.beat()), o.beat()); o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Elector{
		opts: o, now: time.Now, seen: make(map[string]sighting), patience: o.patience(),
		poke: make(chan struct{}, 1), changed: make(chan struct{}, 1), left: make(chan struct{}),
	}, nil
}

// Run keeps the entry of this replica alive, and leads when it is elected, until
// ctx ends. It returns nil.
func (e *Elector) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	poke, changed := e.poke, e.opts.Store.Changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-poke:
		case <-changed:
		}
		rest, err := e.turn(ctx)
		select {
		case <-e.left:
			<-ctx.Done()
			return nil
		default:
		}
		timer.Reset(rest)
		poke, changed = e.poke, e.opts.Store.Changed()
		if err != nil {
			poke, changed = nil, nil // first it rests
		}
	}
}

// turn reads the record, changes it where that is due, and returns how long it
// may rest then, and whether something failed.
func (e *Elector) turn(ctx context.Context) (time.Duration, error) {
	e.signal() // the time of our entry may have run out, as in a standstill of the process
	err := e.exchange(ctx)
	e.report(err)
	e.signal()
	now := e.now()
	rest := min(e.opts.Poll, e.renewAt.Sub(now))
	switch {
	case errors.Is(err, registry.ErrConflict):
		rest = 5*time.Millisecond + rand.N(e.opts.beat()/20) //nolint:gosec // spreads load, keeps no secret
	case err != nil:
		rest = e.opts.beat() / 3
	default:
		for name, s := range e.seen {
			if name != e.opts.Identity {
				rest = min(rest, s.at.Add(s.ttl).Sub(now))
			}
		}
	}
	if until := e.Leadership().Until; !until.IsZero() {
		rest = min(rest, until.Sub(now)) // the loop has to be told when the time is over
	}
	return max(rest, time.Millisecond), err
}

// exchange reads the record, and writes it where our entry is due or something
// in it is ours to change.
func (e *Elector) exchange(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.opts.beat())
	defer cancel()
	data, version, err := e.opts.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("read the record of the replicas: %w", err)
	}
	before, err := e.parsed(data)
	if err != nil {
		return err
	}
	e.adopt(before)
	next, gone := e.next(before)
	now := e.now()
	if before.equal(next) && now.Before(e.renewAt) && !e.unsure {
		return nil
	}
	if data, err = json.Marshal(next); err != nil {
		return fmt.Errorf("write the record of the replicas: %w", err)
	}
	e.yield(next)
	if err := e.opts.Store.Save(ctx, data, version); err != nil {
		e.unsure = e.unsure || !errors.Is(err, registry.ErrConflict)
		return fmt.Errorf("write the record of the replicas: %w", err)
	}
	e.unsure = false // whatever was under way comes too late by now
	e.renewAt = now.Add(e.opts.beat())
	e.mu.Lock()
	e.until, e.joined = now.Add(e.opts.valid()), true
	e.mu.Unlock()
	e.adopt(next)
	if gone {
		close(e.left)
	}
	return nil
}

// parsed returns the record that a text is. One that was deleted or spoiled is
// made anew, with the leader that this replica knows of: else nobody would lead.
func (e *Elector) parsed(data []byte) (record, error) {
	now := e.now()
	r, err := parse(data, now)
	switch {
	case len(data) == 0:
	case errors.Is(err, errSpoiled):
		e.opts.Log.Warn("record of the replicas overwritten by something else; it is made anew", "err", err)
	default:
		return r, err
	}
	e.renewAt = time.Time{} // it is to be written at once
	if e.record.Format == 0 {
		return newRecord(now), nil
	}
	return e.record, nil
}

// adopt takes a record in as the one that holds, and notes which entries
// changed. Where the record was out of sight for long, or this process stood
// still, nothing is concluded from their silence.
func (e *Elector) adopt(r record) {
	now := e.now()
	blind := now.Sub(e.loadedAt) > 2*e.opts.beat()
	e.loadedAt = now
	maps.DeleteFunc(e.seen, func(name string, _ sighting) bool { _, there := r.Members[name]; return !there })
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, m := range r.Members {
		s, known := e.seen[name]
		if !known || blind || s.beat != m.Beat {
			s.at = now
		}
		e.seen[name] = sighting{m.Beat, s.at, max(e.opts.TTL, time.Duration(m.TTL)*time.Millisecond)}
		if name != e.opts.Identity && m.Config != "" && (m.Config != e.config || name == e.other.name) {
			e.other = config{name, m.Config, now}
		}
	}
	e.record, e.highest = r, max(e.highest, r.Term)
	e.yielded = e.yielded && e.unsure
	if _, there := r.Members[e.opts.Identity]; !there {
		e.until = time.Time{}
	}
}

// next returns the record as this replica has it be, and whether it is no member
// there any more.
func (e *Elector) next(r record) (next record, gone bool) {
	now, self := e.now(), e.opts.Identity
	reached := e.opts.Reaches == nil || e.opts.Reaches()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.beat++
	m := member{Beat: e.beat, TTL: e.opts.TTL.Milliseconds(), Leaving: e.leaving, Config: e.config}
	if reached && e.done.Term == r.Term && (e.done.Role == bridge.RoleLeader) == (r.Leader == self) {
		m.Ready = r.Term
	}
	r.Members = maps.Clone(r.Members)
	for name, s := range e.seen {
		if name != self && now.Sub(s.at) >= s.ttl {
			e.opts.Log.Warn("replica silent for its ttl; another leads where it did", "replica", name, "ttl", s.ttl)
			delete(r.Members, name)
		}
	}
	r.Members[self] = m
	if r.Term < e.highest { // it was made anew by a clock that is behind
		r.Term = e.highest + 1
	}
	e.elect(&r, now)
	if gone = e.leaving && r.dispensable(self); gone {
		delete(r.Members, self)
	}
	return r, gone
}

// elect makes the candidate the leader, as far as this replica may: itself where
// nobody leads, and another in its own place, see yield.
func (e *Elector) elect(r *record, now time.Time) {
	self, overdue := e.opts.Identity, e.overdue(*r, now)
	candidate, ready := r.candidate(e.opts.Target)
	switch _, led := r.Members[r.Leader]; {
	case !led && candidate == self:
	case r.Leader == self && candidate != self && ready && (e.leaving || overdue):
	default:
		return
	}
	if overdue {
		e.opts.Log.Warn("this leader does not get ready, so that another leads; look whether this replica reaches the target",
			"replica", self, "for", now.Sub(e.unready), "next", candidate)
	}
	r.Leader = candidate
	r.Term++
}

// overdue reports whether this leader has not been ready for so long that
// another has to lead.
func (e *Elector) overdue(r record, now time.Time) bool {
	switch leads, ready := r.Leader == e.opts.Identity, r.ready(e.opts.Identity); {
	case leads && ready:
		e.unready, e.patience = time.Time{}, e.opts.patience()
	case leads && e.unready.IsZero():
		e.unready = now
	case !leads && !e.unready.IsZero():
		e.unready, e.patience = time.Time{}, min(2*e.patience, e.opts.maxPatience())
	}
	return !e.unready.IsZero() && now.Sub(e.unready) >= e.patience
}

// yield stops this leader before others may learn that the next record has
// another.
func (e *Elector) yield(next record) {
	e.mu.Lock()
	_, stays := next.Members[e.opts.Identity]
	e.yielded = e.yielded || next.Leader != e.opts.Identity || !stays
	e.mu.Unlock()
	e.signal()
}

// signal makes the loop look where the leadership is another than was shown.
func (e *Elector) signal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, now := e.shown, e.leadership()
	if now.Until = (time.Time{}); now == before { // it moves with every renewal
		return
	}
	e.shown = now
	wake(e.changed)
	if before.Role == bridge.RoleLeader && now.Role != bridge.RoleLeader && !e.yielded {
		e.lost++
		e.opts.Log.Warn("lease not renewed in time; nothing is written until it is", "replica", e.opts.Identity, "target", e.opts.Target)
	}
}

// report logs the first of several errors, and their end.
func (e *Elector) report(err error) {
	if errors.Is(err, registry.ErrConflict) {
		err = nil // another was faster
	}
	e.mu.Lock()
	before := e.lastErr
	e.lastErr = err
	e.mu.Unlock()
	switch {
	case err != nil && before == nil:
		e.opts.Log.Warn("the record of the replicas is out of reach", "target", e.opts.Target, "err", err)
	case err == nil && before != nil:
		e.opts.Log.Info("the record of the replicas is in reach again", "target", e.opts.Target)
	}
}

// Leave makes another replica lead once one is ready to, and waits until that
// one is ready as the leader, so that nothing of ours is missed when our
// connections end. Where nobody else stays it does not wait.
func (e *Elector) Leave(ctx context.Context) error {
	e.mu.Lock()
	e.leaving = true
	e.mu.Unlock()
	wake(e.poke)
	select {
	case <-e.left:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hand over to another replica: %w", context.Cause(ctx))
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
