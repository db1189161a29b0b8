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

// An Elector takes part in the election of the leader of one target while Run runs. It
// implements bridge.Election, and is safe for concurrent use.
type Elector struct {
	opts    Options
	changed chan struct{} // ready after the leadership changed
	left    chan struct{} // closed once this replica is not a member any more

	mu       sync.Mutex // guards the following fields
	election election
	notified bridge.Leadership // the leadership at the last notification of the loop
	lost     int               // how often the lease of this replica expired
	lastErr  error
}

// New returns an elector that does not lead yet.
func New(o Options) *Elector {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Elector{
		opts: o, changed: make(chan struct{}, 1), left: make(chan struct{}),
		election: election{Options: o, patience: o.minPatience()},
	}
}

// Run renews the entry of this replica, and leads when it is elected, until ctx ends or
// the replica has left. It always returns nil.
func (e *Elector) Run(ctx context.Context) error {
	poll, timer := min(e.opts.TTL/15, time.Second), time.NewTimer(0)
	defer timer.Stop()
	for {
		e.logReachability(e.poll(ctx))
		timer.Reset(poll/2 + rand.N(poll/2)) // random, so that replicas do not poll in step
		select {
		case <-ctx.Done():
			return nil
		case <-e.left:
			return nil
		case <-timer.C:
		}
	}
}

// poll reads the record, and writes the decision of this replica.
func (e *Elector) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.opts.beat())
	defer cancel()
	e.update(func(*election) {}) // our lease may have expired, such as while the process was suspended
	text, version, err := e.opts.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("read lease record: %w", err)
	}
	now := time.Now()
	before, valid, err := parseRecord(text, now)
	if err != nil {
		return err
	}
	if !valid && len(text) > 0 {
		e.opts.Log.Warn("lease record was overwritten by another writer; recreating it", "target", e.opts.Target)
	}
	reachable, next, write := e.opts.Reaches(), leaseRecord{}, false
	e.update(func(state *election) {
		state.reachable = reachable
		if !valid {
			before = state.recreate(now)
		}
		next, write = state.decide(now, before)
	})
	if !write {
		return nil
	}
	text, _ = json.Marshal(next) // it has only texts and numbers, so this cannot fail
	switch err := e.opts.Store.Save(ctx, text, version); {
	case errors.Is(err, registry.ErrConflict):
		return nil // another replica was faster; the next poll reads its record
	case err != nil:
		return fmt.Errorf("write lease record: %w", err)
	}
	e.update(func(state *election) { state.record, state.renewedAt = next, now })
	e.logChange(before, next)
	return nil
}

// update changes the election, and notifies the loop if the leadership changed.
func (e *Elector) update(change func(*election)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.election)
	before, now := e.notified, e.election.leadership(time.Now())
	if now.Until = (time.Time{}); now == before { // Until changes with every renewal
		return
	}
	e.notified = now
	select {
	case e.changed <- struct{}{}:
	default:
	}
	if before.Role == bridge.RoleLeader && now.Role != bridge.RoleLeader && !e.election.renewedAt.IsZero() {
		e.lost++
		e.opts.Log.Warn("lease lost: not renewed in time; writes wait until it is renewed",
			"replica", e.opts.Identity, "target", e.opts.Target)
	}
}

// logChange logs the changes of this replica to the record.
func (e *Elector) logChange(before, next leaseRecord) {
	self, leader := e.opts.Identity, before.Leader
	if leader != self && before.has(leader) && !next.has(leader) {
		e.opts.Log.Warn("leader lease expired; taking over", "target", e.opts.Target, "replica", leader)
	}
	if leader == self && next.Leader != self && !next.Members[self].Leaving {
		e.opts.Log.Warn("stepping down: not ready in time; check that this replica can reach the target",
			"replica", self, "next", next.Leader)
	}
	if !next.has(self) {
		close(e.left)
	}
}

// logReachability logs the first of consecutive errors, and their end.
func (e *Elector) logReachability(err error) {
	e.mu.Lock()
	before := e.lastErr
	e.lastErr = err
	e.mu.Unlock()
	switch {
	case err != nil && before == nil:
		e.opts.Log.Warn("lease record is unreachable", "target", e.opts.Target, "err", err)
	case err == nil && before != nil:
		e.opts.Log.Info("lease record is reachable again", "target", e.opts.Target)
	}
}

// Leave hands over to another replica once one is ready, and waits until that replica is
// ready as the leader. So no entry is missing when our connections end. If there is no
// other replica, it does not wait.
func (e *Elector) Leave(ctx context.Context) error {
	e.update(func(state *election) { state.leaving = true })
	select {
	case <-e.left:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hand over to another replica: %w", context.Cause(ctx))
	}
}

// Ready implements bridge.Election.
func (e *Elector) Ready(l bridge.Leadership) {
	e.update(func(state *election) { state.readyFor = l })
}

// Configure reports the configuration of this replica to the others, by a text that is
// equal for replicas with an equal configuration.
func (e *Elector) Configure(text string) {
	e.update(func(state *election) { state.config = text })
}

// Leadership implements bridge.Election.
func (e *Elector) Leadership() bridge.Leadership { return e.State().Leadership }

// Changed implements bridge.Election.
func (e *Elector) Changed() <-chan struct{} { return e.changed }

// State is the state of the election of one target, as a replica knows it.
type State struct {
	bridge.Leadership

	Members   []string // in order
	Ready     bool     // whether this replica is ready for its role
	Lost      int      // how often the lease of this replica expired
	LastError string   // why the record is unreachable; empty if it is reachable
}

// State returns the current state.
func (e *Elector) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.election.record
	s := State{
		Leadership: e.election.leadership(time.Now()), Members: slices.Sorted(maps.Keys(r.Members)),
		Ready: r.ready(e.opts.Identity), Lost: e.lost,
	}
	if e.lastErr != nil {
		s.LastError = e.lastErr.Error()
	}
	return s
}

// Remembered is how long a replica that left the record still counts for Differing. It may
// come back, such as a replica that restarts repeatedly.
const Remembered = 10 * time.Minute

// Differing returns the name of a replica whose configuration differs from that of this
// one. A replica that left the record counts until Remembered has passed. An entry that
// only such a replica writes is not an orphan. Before the record was read, Differing
// returns true without a name.
func (e *Elector) Differing() (name string, differs bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch state, other := &e.election, e.election.otherConfig; {
	case state.record.Format == 0:
		return "", true
	case state.config == "", other.config == state.config, time.Since(other.at) >= Remembered:
		return "", false
	default:
		return other.name, true
	}
}
