package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// withdraw is the setting onRemove by which entries are taken back.
const withdraw = "withdraw"

// recordRemovals is the kind of records that keep onRemove of bridges, for a
// process that finds them gone from its file.
const recordRemovals = "removals"

// A removal decides what becomes of entries of ours whose bridge leads to an
// end no more. They stay, unless the bridge was there with onRemove: withdraw
// last; then they are leftovers, which go when the guard lets them.
type removal struct {
	owner, peer string
	here        map[string]config.Bridge // that lead there, by what marks call them
	registry    config.Registry          // it is
	served      bool                     // whatever is there is ours and of this process
	recorder    registry.Recorder        // nil: nothing outlives the process
	audit       *audit.Log
	log         *slog.Logger
	retry       time.Duration
	tell        func(bridge.Event)
	election    *election // nil: no other replica's file may have what ours has not

	// Only run touches these.
	recorded bool   // the records are as they should be
	differ   string // why replicas did
	said     bool   // that the records cannot be reached

	asked func()          // closes known
	known <-chan struct{} // closed once the records were as they should be

	mu        sync.Mutex
	withdrawn map[string]removed // by what marks call the bridge
	gone      map[string]string  // names of bridges that are not here, likewise
	told      map[string]bool    // reasons that were said
}

// removed is a bridge whose entries are taken back once it is gone.
type removed struct {
	Bridge string    `json:"bridge"`
	Since  time.Time `json:"since,omitzero"` // when it was found gone; zero while it is there
}

// removal returns what decides for an end, which knows of the bridges that a
// reload took away from there.
func (b *builder) removal(at end, o *outlet) *removal {
	known := make(chan struct{})
	r := &removal{
		known: known, asked: sync.OnceFunc(func() { close(known) }),
		registry: b.cfg.Registries[at.registry], served: at.listen != "",
		owner: b.cfg.Owner, peer: at.String(), here: make(map[string]config.Bridge), withdrawn: make(map[string]removed), gone: make(map[string]string), told: make(map[string]bool), tell: b.events.Add,
		election: o.election, audit: b.audit, log: b.log.With("component", "bridge", "peer", at.String()), retry: b.cfg.Registries[at.registry].Timing.RetryMax.Std(),
	}
	if recorder, ok := o.target.(registry.Recorder); ok && !b.dryRun {
		r.recorder = recorder
	}
	for _, x := range leadingTo(b.cfg, at) {
		r.here[metadata.Fingerprint(x.Name, metadata.BridgeLen)] = x
	}
	if b.dryRun {
		r.audit = nil // nothing is taken back
	}
	if b.before != nil {
		if old := b.before.outlet(at); old != nil {
			r.follow(old.removal)
		}
	}
	return r
}

// follow takes over what the one before it knew, and what was there with that
// one and is no more.
func (r *removal) follow(old *removal) {
	old.mu.Lock()
	defer old.mu.Unlock()
	maps.Copy(r.withdrawn, old.withdrawn)
	maps.Copy(r.gone, old.gone)
	for tag, x := range old.here {
		r.gone[tag] = x.Name
		if x.OnRemove == withdraw {
			r.withdrawn[tag] = removed{Bridge: x.Name}
		}
	}
	maps.DeleteFunc(r.withdrawn, func(tag string, _ removed) bool { _, back := r.here[tag]; return back })
}

// stays says why an entry of ours that nobody claims stays, as stay does, and
// the log and the events say each reason once.
func (r *removal) stays(e registry.Entry) string {
	why := r.stay(e)
	r.mu.Lock()
	known := why == "" || r.told[why]
	r.told[why] = true
	r.mu.Unlock()
	if !known {
		r.log.Warn("entries of ours stay that no bridge writes", "group", e.Group.String(), "reason", why)
		r.tell(bridge.Event{Time: time.Now(), Kind: bridge.EventKept, Target: r.peer, Subject: e.Group.String(), What: "entries of ours stay that no bridge writes", Why: why})
	}
	return why
}

// stay says why an entry of ours that nobody claims stays; empty where it is
// a leftover. One without a mark that can be read is known by its group alone,
// and is one.
func (r *removal) stay(e registry.Entry) string {
	m, err := metadata.MarkOf(e)
	if err != nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := placeOf(e.Group)
	x, here := r.here[m.Bridge]
	_, goes := r.withdrawn[m.Bridge]
	switch {
	case goes, here && (r.served || x.OnRemove == withdraw || writes(r.registry, x, at)):
		return ""
	case here:
		return fmt.Sprintf("bridge %s writes %s no more; set its onRemove: withdraw to take this back", x.Name, at)
	}
	return fmt.Sprintf("its bridge%s is gone from the configuration, and onRemove keeps what it wrote; "+
		"put it back with onRemove: withdraw, let it run, and remove it again", r.called(m.Bridge))
}

// fate says what becomes of what a bridge left at a place that it writes no
// more; nothing of one that is gone as a whole.
func (r *removal) fate(name string, at place) string {
	switch x, here := r.here[metadata.Fingerprint(name, metadata.BridgeLen)]; {
	case !here:
		return ""
	case x.OnRemove == withdraw:
		return "leaves " + at.String() + "; its entries there are taken back as the guard lets them"
	}
	return "leaves " + at.String() + "; its entries there stay"
}

// called returns the name of a bridge that is gone, empty where nothing tells
// it. The lock is held.
func (r *removal) called(tag string) string {
	if name := r.gone[tag]; name != "" {
		return " " + name
	}
	return ""
}

// run keeps the record of the bridges that are there, and takes up those that
// are gone by it. Then the loop has to look again at what stayed, and so it has
// when all replicas have come to be configured alike.
func (r *removal) run(ctx context.Context, again func(context.Context) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	r.recorded = false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		found, next := r.look(ctx)
		if found {
			if err := again(ctx); err != nil {
				return err
			}
		}
		if r.recorded {
			r.asked()
		}
		if next == 0 {
			return nil
		}
		timer.Reset(next)
	}
}

// wait waits until run has asked the records once, and the loop to look again
// at what stayed by them.
func (r *removal) wait(ctx context.Context) {
	select {
	case <-r.known:
	case <-ctx.Done():
	}
}

// look brings the records up to date where that is due. It reports whether what
// stayed may go by now, and after what time it is to be called again; 0: never.
func (r *removal) look(ctx context.Context) (found bool, next time.Duration) {
	if before := r.compare(); before != "" && r.differ == "" {
		r.recorded, found = false, before != unread // before that nothing was judged
	}
	if !r.recorded {
		gone, err := r.exchange(ctx)
		found = found || gone
		r.recorded = r.exchanged(ctx, err)
	}
	switch {
	case !r.recorded:
		return found, r.retry
	case r.election != nil:
		return found, time.Second
	}
	return found, 0
}

// compare finds out why replicas differ, and returns why they did.
func (r *removal) compare() (before string) {
	before = r.differ
	r.differ = r.election.differing()
	if r.differ != before && r.differ != "" && r.differ != unread {
		r.log.Warn("replicas differ", "reason", r.differ)
	}
	return before
}

// exchanged reports whether an exchange that ended so need not be tried again.
func (r *removal) exchanged(ctx context.Context, err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, registry.ErrRefused):
		if r.remembers() {
			r.log.Warn("onRemove: withdraw cannot be remembered for a restart; let our user write below the owner's node", "err", err)
		}
		return true
	case !r.said && ctx.Err() == nil:
		r.log.Warn("it is not known yet which bridges were removed with onRemove: withdraw", "err", err)
		r.said = true
	}
	return false
}

// remembers reports whether there is something to remember.
func (r *removal) remembers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.here {
		if x.OnRemove == withdraw {
			return true
		}
	}
	return len(r.withdrawn) > 0
}

// exchange reads the records, brings them up to date and tells of each bridge
// that is found gone, once. It reports whether the records told of one. While
// replicas differ, one that is not here may be there: of others' nothing is
// taken up, and nothing forgotten.
func (r *removal) exchange(ctx context.Context) (found bool, err error) {
	known := make(map[string]string)
	var refused error // some of them
	if r.recorder != nil {
		if known, err = r.recorder.Records(ctx, recordRemovals); err != nil {
			err = fmt.Errorf("read what onRemove was of bridges: %w", err)
		}
		if err != nil && len(known) == 0 {
			return false, err
		}
		refused = err
	}
	want, found := r.learn(ctx, known)
	return found, cmp.Or(r.store(ctx, known, want), refused) //nolint:wrapcheck // both are
}

// learn takes in what the records say and returns what they should, and whether
// they told of a bridge that is gone.
func (r *removal) learn(ctx context.Context, known map[string]string) (want map[string]removed, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.election.differing() == "" {
		found = r.takeUp(ctx, known)
	}
	want = maps.Clone(r.withdrawn)
	for tag, x := range r.here {
		if x.OnRemove == withdraw {
			want[tag] = removed{Bridge: x.Name}
		}
	}
	return want, found
}

// takeUp takes up the bridges that are found gone by the records, and reports
// whether there is one that was not known of. The lock is held.
func (r *removal) takeUp(ctx context.Context, known map[string]string) (found bool) {
	for tag, text := range known {
		var was removed
		_, here := r.here[tag]
		_, told := r.withdrawn[tag]
		if !here && !told && json.Unmarshal([]byte(text), &was) == nil && was.Bridge != "" {
			r.withdrawn[tag], found = was, true
		}
	}
	r.announce(ctx)
	return found
}

// announce tells of bridges that are found gone. The lock is held.
func (r *removal) announce(ctx context.Context) {
	for _, tag := range slices.Sorted(maps.Keys(r.withdrawn)) {
		if w := r.withdrawn[tag]; w.Since.IsZero() {
			w.Since = time.Now()
			r.withdrawn[tag] = w
			r.audit.Record(ctx, audit.Entry{
				Who: "the configuration", Action: withdraw, Owner: r.owner, Target: r.peer, Bridge: w.Bridge, Subject: w.Bridge,
				After: "taken back as the guard lets them: the bridge was removed with onRemove: withdraw",
			})
		}
	}
}

// store makes the records say what is wanted. The loop asks meanwhile what
// stays, and must not wait for a registry that does not answer.
func (r *removal) store(ctx context.Context, known map[string]string, want map[string]removed) error {
	if r.recorder == nil {
		return nil
	}
	texts := make(map[string]string)
	for tag := range known {
		if _, wanted := want[tag]; !wanted && r.election.differing() == "" {
			texts[tag] = ""
		}
	}
	for tag, x := range want {
		text, err := json.Marshal(x)
		if err != nil {
			return fmt.Errorf("record what onRemove is: %w", err)
		}
		if known[tag] != string(text) {
			texts[tag] = string(text)
		}
	}
	var refused error // a record that is costs itself
	for _, tag := range slices.Sorted(maps.Keys(texts)) {
		if err := r.recorder.Record(ctx, recordRemovals, tag, texts[tag]); err != nil {
			refused = fmt.Errorf("record what onRemove is: %w", err)
		}
		if refused != nil && !errors.Is(refused, registry.ErrRefused) {
			return refused
		}
	}
	return refused
}
