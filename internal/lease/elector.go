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
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An Elector joins the election of the leader of one target while Run runs. It implements bridge.Election, and is safe for concurrent use.
type Elector struct {
	opts    Options
	changed chan struct{} // the leadership is another
	left    chan struct{} // closed once this replica is no member any more

	mu      sync.Mutex
	view    view
	shown   bridge.Leadership // as the loop was last notified
	lost    int               // how often the time of its entry ran out
	lastErr error
}

// New returns an elector that leads nothing yet.
func New(o Options) *Elector {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Elector{
		opts: o, changed: make(chan struct{}, 1), left: make(chan struct{}), view: view{Options: o, patience: o.leastPatience()},
	}
}

// Run keeps the entry of this replica alive, and leads when it is elected, until
// ctx ends or it has left. It returns nil.
func (e *Elector) Run(ctx context.Context) error {
	poll, timer := min(e.opts.TTL/15, time.Second), time.NewTimer(0)
	defer timer.Stop()
	for {
		e.report(e.turn(ctx))
		timer.Reset(poll/2 + rand.N(poll/2)) // no two replicas stay in sync
		select {
		case <-ctx.Done():
			return nil
		case <-e.left:
			return nil
		case <-timer.C:
		}
	}
}

// turn reads the record and writes what is decided.
func (e *Elector) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.opts.beat())
	defer cancel()
	e.update(func(*view) {}) // the time of our lease may have run out, as in a standstill of the process
	text, version, err := e.opts.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("read the record of the replicas: %w", err)
	}
	now := time.Now()
	before, sound, err := parse(text, now)
	if err != nil {
		return err
	}
	if !sound && len(text) > 0 {
		e.opts.Log.Warn("record of the replicas overwritten by something else; it is made anew", "target", e.opts.Target)
	}
	reachable, next, due := e.opts.Reaches(), record{}, false
	e.update(func(v *view) {
		v.reachable = reachable
		if !sound {
			before = v.anew(now)
		}
		next, due = v.decide(now, before)
	})
	if !due {
		return nil
	}
	text, _ = json.Marshal(next) // of text and numbers, so that it cannot fail
	switch err := e.opts.Store.Save(ctx, text, version); {
	case errors.Is(err, registry.ErrConflict):
		return nil // another was faster, and what it wrote is read next
	case err != nil:
		return fmt.Errorf("write the record of the replicas: %w", err)
	}
	e.update(func(v *view) { v.record, v.renewed = next, now })
	e.logChange(before, next)
	return nil
}

// update changes the view, and notifies the loop of another leadership.
func (e *Elector) update(change func(*view)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.view)
	before, now := e.shown, e.view.leadership(time.Now())
	if now.Until = (time.Time{}); now == before { // it moves with every renewal
		return
	}
	e.shown = now
	select {
	case e.changed <- struct{}{}:
	default:
	}
	if before.Role == bridge.RoleLeader && now.Role != bridge.RoleLeader && !e.view.renewed.IsZero() {
		e.lost++
		e.opts.Log.Warn("lease not renewed in time; nothing is written until it is", "replica", e.opts.Identity, "target", e.opts.Target)
	}
}

// logChange reports what this replica changed in the record.
func (e *Elector) logChange(before, next record) {
	self, leader := e.opts.Identity, before.Leader
	if leader != self && before.has(leader) && !next.has(leader) {
		e.opts.Log.Warn("leader silent for its ttl; another leads in its place", "target", e.opts.Target, "replica", leader)
	}
	if leader == self && next.Leader != self && !next.Members[self].Leaving {
		e.opts.Log.Warn("this leader does not get ready, so that another leads; look whether this replica reaches the target",
			"replica", self, "next", next.Leader)
	}
	if !next.has(self) {
		close(e.left)
	}
}

// report logs the first of several errors, and their end.
func (e *Elector) report(err error) {
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
	e.update(func(v *view) { v.leaving = true })
	select {
	case <-e.left:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hand over to another replica: %w", context.Cause(ctx))
	}
}

// Ready implements bridge.Election.
func (e *Elector) Ready(l bridge.Leadership) { e.update(func(v *view) { v.done = l }) }

// Configure reports to the others what this replica is configured to write, by a text
// that is the same for all that are configured alike.
func (e *Elector) Configure(text string) { e.update(func(v *view) { v.config = text }) }

// Leadership implements bridge.Election.
func (e *Elector) Leadership() bridge.Leadership { return e.State().Leadership }

// Changed implements bridge.Election.
func (e *Elector) Changed() <-chan struct{} { return e.changed }

// State is what a replica knows of the election of one target.
type State struct {
	bridge.Leadership

	Members   []string // in order
	Ready     bool     // it did what its role asks for
	Lost      int      // how often the time of its entry ran out
	LastError string   // why the record is out of reach; empty: it is not
}

// State returns what is known now.
func (e *Elector) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.view.record
	s := State{
		Leadership: e.view.leadership(time.Now()), Members: slices.Sorted(maps.Keys(r.Members)), Ready: r.ready(e.opts.Identity), Lost: e.lost,
	}
	if e.lastErr != nil {
		s.LastError = e.lastErr.Error()
	}
	return s
}

// Remembered is how long a replica that is gone from the record counts for
// Differing: it may be back, as one that is restarted again and again.
const Remembered = 10 * time.Minute

// Differing reports whether a replica is configured otherwise than this one, or
// was when it was last seen, no longer than Remembered ago, and which. None is
// named before the record was read. What only the other writes is no orphan.
func (e *Elector) Differing() (name string, differs bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch v, o := e.view, e.view.other; {
	case v.record.Format == 0:
		return "", true
	case v.config == "", o.config == v.config, time.Since(o.at) >= Remembered:
		return "", false
	default:
		return o.name, true
	}
}
