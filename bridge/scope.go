package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A scope is what one guard judges: the endpoints that the target stores of one
// bridge, which may be none of the loop's any more.
type scope struct {
	name     string
	way      *way // nil: the bridge is none of the loop's, and claims nothing
	guard    *guard.Guard
	changed  bool                                       // since the guard judged last
	waits    bool                                       // the guard lets something go by time alone
	next     time.Time                                  // when it has to judge again; zero: not before something changes
	asked    time.Time                                  // when the source was last asked for a new connection
	held     *held                                      // as it was published last; nil: nothing is
	denied   *held                                      // likewise
	decided  string                                     // what a person decided last about what is held
	recorded map[string]map[registry.Group]guard.Record // by name of the record
	unstored map[registry.Group]struct{}                // whose record is not stored yet
}

// addScope adds the scope of a bridge. A plan shows what is left once waits are
// over.
func (l *loop) addScope(name string, w *way) *scope {
	o := DefaultGuard()
	if w != nil {
		o = w.Guard
	}
	if l.dry {
		o.Settle, o.LastEndpoint = 0, 0
	}
	b := &scope{
		name: name, way: w, guard: guard.New(o, nil),
		recorded: make(map[string]map[registry.Group]guard.Record), unstored: make(map[registry.Group]struct{}),
	}
	b.restore(l.records.guards)
	l.scopes = append(l.scopes, b)
	return b
}

// restart begins all waits of a scope anew.
func (l *loop) restart(b *scope, now time.Time) {
	for it := range l.owing {
		for _, o := range it.orphans {
			if o.scope == b {
				o.since = now
			}
		}
	}
	b.guard.Restart(now)
	b.changed = true
}

// reset forgets all that the guard of a scope knows: another replica judges, or did.
func (l *loop) reset(b *scope) {
	if b.held != nil && !l.acts() {
		l.tellEnd(b, b.held, "another replica leads by now")
	}
	b.held, b.denied, b.waits = nil, nil, false
	b.guard, b.changed = guard.New(b.guard.Options, nil), true
}

// held is a hold as status shows it, with its keys.
type held struct {
	Hold

	keys []guard.Key
}

// holds returns what is held and what was denied.
func (b *scope) holds() (all []*held) {
	for _, h := range []*held{b.held, b.denied} {
		if h != nil {
			all = append(all, h)
		}
	}
	return all
}

// holdStatus returns a hold as status shows it; nil where there is none.
func (b *scope) holdStatus(target string, h *guard.Hold) *held {
	if h == nil {
		return nil
	}
	where := sha256.Sum256([]byte(target + "\x00" + b.name))
	out := &held{keys: h.Keys, Hold: Hold{
		ID: hex.EncodeToString(where[:3]) + "-" + h.ID, Bridge: b.name, Since: h.Since,
		Reason: fmt.Sprintf("%d of %d services would have no endpoint left", h.Emptied, h.Services), Release: b.release(h),
	}}
	switch {
	case b.way == nil:
		out.Reason = "bridge " + b.name + " is not configured"
	case h.Emptied == 0:
		out.Reason = fmt.Sprintf("%d of %d endpoints would be gone within %s", h.Lost, h.Endpoints, b.guard.Options.Window)
	}
	for _, k := range h.Keys {
		if n := len(out.Groups); n == 0 || out.Groups[n-1] != k.Service {
			out.Groups = append(out.Groups, k.Service)
		}
		out.Entries = append(out.Entries, k.Service.String()+" "+k.Key)
	}
	return out
}

// release says what ends a hold.
func (b *scope) release(h *guard.Hold) string {
	switch confirm := b.guard.Options.Confirm; {
	case b.guard.Options.Mode == GuardWarn:
		return "at once: guard.mode is warn"
	case b.way == nil:
		return "by approval, or once the bridge is configured again"
	case confirm == 0:
		return "by approval"
	case h.Person && 2*h.Emptied > h.Services && h.Emptied < h.Services:
		return "by approval alone: more than half of its services would have no endpoint left"
	case h.Person:
		return "by approval alone: its source shows nothing"
	}
	return "by approval, or if the source still says so over a new connection " + b.guard.Options.Confirm.String() + " after it began"
}

// An orphan is a key of ours that the target stores and nobody claims.
type orphan struct {
	plan.Surplus
	item     *item
	scope    *scope    // of the bridge that claimed it last or, by its mark, wrote it
	author   string    // that bridge; empty: nobody claimed it, and it does not say
	since    time.Time // when it was first seen, or what waits began anew
	unknown  bool      // at the last look the source could not tell
	released string    // how the hold ended that let it go; empty: none did
}

// missing reports whether its source did not report that it is gone.
func (o *orphan) missing() bool { return !o.Known || o.How == plan.Found }

func (o *orphan) entry() registry.Entry {
	return registry.Entry{Group: o.item.group, Key: o.Key, Value: o.Value}
}

// scopeOf returns whose guard judges an orphan: that of the bridge that claimed
// it last or, by its mark, wrote it. What does not tell is the first bridge's.
func (l *loop) scopeOf(o *orphan) *scope {
	if o.Known {
		return l.scopes[o.Origin.Bridge]
	}
	if l.opts.Author != nil {
		o.author = l.opts.Author(o.entry())
	}
	if o.author == "" {
		return l.scopes[0]
	}
	if i := slices.IndexFunc(l.scopes, func(b *scope) bool { return b.name == o.author }); i >= 0 {
		return l.scopes[i]
	}
	return l.addScope(o.author, nil)
}

// A verdict says whether an orphan may be deleted; where it may not, why, and
// from when on it may if time alone is missing.
type verdict struct {
	reason Reason // empty: it may be deleted
	detail string
	at     time.Time
}

// barred applies the rules that hold whatever the guard is: the policy, and that
// nothing is deleted on ignorance.
func (l *loop) barred(o *orphan) verdict {
	keeps := Policy("")
	for _, w := range l.ways {
		if w == o.scope.way || !o.Known && o.author == "" { // it may be of any
			keeps = cmp.Or(keeps, w.keeps())
		}
	}
	for origin := range l.planner.Losers(o.item.group, o.Key) {
		keeps = cmp.Or(keeps, l.ways[origin.Bridge].keeps())
	}
	if keeps != "" {
		return verdict{reason: ReasonReadOnly, detail: "policy " + string(keeps) + " keeps what is no longer claimed"}
	}
	if err := l.ignorance(o); err != nil {
		return verdict{reason: ReasonUnknown, detail: err.Error()}
	}
	return verdict{}
}

// ignorance returns why it may not be believed that nobody claims a key: because
// of any service that claimed it; where none is known, of the bridge that wrote
// it or, of one that is not configured, of any that may have taken its services
// over; or of another replica that may claim it.
func (l *loop) ignorance(o *orphan) error {
	for origin := range l.planner.Losers(o.item.group, o.Key) {
		if err := l.ways[origin.Bridge].ignorance(origin.Service); err != nil {
			return err
		}
	}
	if o.Known {
		return nil
	}
	if l.opts.Differ != nil {
		if why := l.opts.Differ(); why != "" && l.planner.Endpoints(o.item.group) == 0 {
			return errors.New(why)
		}
	}
	for _, w := range l.ways {
		told := o.author == o.scope.name && o.scope.way != nil
		if told && w != o.scope.way {
			continue
		}
		if err := w.ignoranceOf(o.entry()); err != nil {
			return err
		}
	}
	return nil
}

// judge returns what becomes of an orphan. What is no endpoint settles as a
// missing endpoint does, for whoever still reads what it was told of before.
func (l *loop) judge(o *orphan, now time.Time) verdict {
	if v := l.barred(o); v.reason != "" {
		return v
	}
	b := o.scope
	if !registry.IsEndpoint(o.Key) {
		return o.settling(now)
	}
	fate, until := b.guard.Fate(o.item.group, o.Key)
	switch fate {
	case guard.Free:
		if _, unstored := b.unstored[o.item.group]; unstored {
			return verdict{reason: ReasonWaiting, detail: "what was lost is being recorded"}
		}
		return verdict{}
	case guard.Held:
		return verdict{reason: ReasonHeld, detail: b.held.Reason}
	case guard.Denied:
		return verdict{reason: ReasonHeld, detail: "a person denied that it is deleted"}
	case guard.Last:
		return verdict{reason: ReasonWaiting, detail: "the last endpoint waits", at: until}
	case guard.Untold:
		return verdict{reason: ReasonUnknown, detail: "the source cannot tell"}
	case guard.Settling:
	}
	if !l.mayJudge() {
		return verdict{reason: ReasonWaiting, detail: "the target has not been read in full yet"}
	}
	return verdict{reason: ReasonWaiting, detail: "what is missing settles for " + b.guard.Options.Settle.String(), at: until}
}

// settling applies the wait of what is no endpoint. What stands for a group itself
// waits for as long as a loss counts: a source that begins cannot tell a service
// that has no endpoint for a moment from one that is no more, and it is where the
// next one is looked for.
func (o *orphan) settling(now time.Time) verdict {
	opts := o.scope.guard.Options
	wait := opts.Settle
	if opts.Mode == GuardOff || !o.missing() && !registry.IsPart(o.Key) {
		wait = 0
	} else if wait > 0 && o.Key == registry.HeadKey {
		wait = max(wait, opts.Window)
	}
	if at := o.since.Add(wait); wait > 0 && now.Before(at) {
		return verdict{reason: ReasonWaiting, detail: "what is missing settles for " + wait.String(), at: at}
	}
	return verdict{}
}

// account brings what is known of the orphans of a group up to date, and tells
// the guards what the target stores of their bridges.
func (l *loop) account(it *item, now time.Time) {
	before := it.orphans
	it.orphans = nil
	if l.acts() {
		it.orphans = l.orphans(it, before, now)
	}
	for key, o := range before {
		if it.orphans[key] != o && o.Known {
			l.ways[o.Origin.Bridge].owe(o.Origin.Service, -1)
		}
	}
	for key, o := range it.orphans {
		if before[key] != o && o.Known {
			l.ways[o.Origin.Bridge].owe(o.Origin.Service, 1)
		}
	}
	if len(it.orphans) > 0 {
		l.owing[it] = struct{}{}
	} else {
		delete(l.owing, it)
	}
	l.inform(it, now)
}

// orphans returns the orphans of a group. Those that were there before stay as they are.
func (l *loop) orphans(it *item, before map[string]*orphan, now time.Time) (all map[string]*orphan) {
	for found := range l.planner.Surplus(it.group) {
		o := before[found.Key]
		if o == nil || o.Surplus != found {
			o = &orphan{Surplus: found, item: it, since: now}
			o.scope = l.scopeOf(o)
		}
		if all == nil {
			all = make(map[string]*orphan)
		}
		all[found.Key] = o
	}
	return all
}

// inform tells the guards what the target stores of their bridges in a group once
// what is claimed there is added: a write adds and deletes at once.
func (l *loop) inform(it *item, now time.Time) {
	if _, unread := l.unread[it.group]; unread && it.readAt.IsZero() {
		return // what it stores was never known
	}
	stored := make(map[*scope][]guard.Endpoint, len(l.scopes))
	if l.acts() && !it.arrive { // of a group to which nothing was written, nothing is there
		for d := range l.planner.Desired(it.group) {
			if _, refused := it.refusals[d.Key]; registry.IsEndpoint(d.Key) && !refused {
				b := l.scopes[d.Origin.Bridge]
				stored[b] = append(stored[b], guard.Endpoint{Key: d.Key, Claim: guard.Claimed, New: !d.Held})
			}
		}
		for key, o := range it.orphans {
			if claim := l.claimOf(o, now); registry.IsEndpoint(key) {
				stored[o.scope] = append(stored[o.scope], guard.Endpoint{Key: key, Claim: claim})
			}
		}
	}
	for _, b := range l.scopes {
		b.guard.Observe(now, it.group, stored[b])
		b.changed = true
	}
}

// claimOf returns what the source reports of an orphan.
func (l *loop) claimOf(o *orphan, now time.Time) guard.Claim {
	v := l.barred(o)
	if o.unknown && v.reason == "" {
		o.since = now
	}
	o.unknown = v.reason != ""
	switch {
	case o.unknown:
		return guard.Unknown
	case o.missing():
		return guard.Missing
	}
	return guard.Withdrawn
}

// mayJudge reports whether what the target stores is known well enough to judge
// what may be deleted: all of it was read, what is to be added was added once,
// and what an earlier process recorded is known.
func (l *loop) mayJudge() bool {
	return l.listed != nil && len(l.unread)+len(l.agenda.arrivals) == 0 && l.records.loaded()
}

// unjudged reports whether a guard has yet to judge by what it was told.
func (l *loop) unjudged() bool {
	return l.acts() && slices.ContainsFunc(l.scopes, func(b *scope) bool { return b.changed && (b.way == nil || b.way.complete()) })
}

// judgeAll has each guard judge whose facts or time have changed, and returns when
// one has to again; the zero time where only an event helps.
func (l *loop) judgeAll(now time.Time) (next time.Time) {
	if !l.mayJudge() || !l.acts() {
		return time.Time{}
	}
	for _, b := range l.scopes {
		dials := 0
		if b.way != nil {
			if dials = b.way.known.Dials; !b.way.complete() {
				continue
			}
		}
		if due := !b.next.IsZero() && !now.Before(b.next); b.changed || due {
			l.apply(b, b.guard.Judge(now, dials), now)
		}
		next = soonest(next, b.next)
	}
	return next
}

// apply does what a judgement asks for.
func (l *loop) apply(b *scope, r guard.Round, now time.Time) {
	b.changed, b.next, b.waits = false, r.Next, r.Waits
	for _, group := range r.Changed {
		l.storeRecord(b, group)
	}
	l.release(b, r, now)
	if r.Reconnect && b.way != nil && b.way.Recheck != nil && now.Sub(b.asked) >= b.guard.Options.Confirm/2 {
		b.asked = now
		b.way.Recheck()
	}
	if h := b.holdStatus(l.opts.Target, r.Warned); h != nil {
		l.tellOf(h.Hold, "would be held back")
		l.warnOf(b, h)
	}
	l.showHold(b, r)
}

// release makes the groups due in which something may be deleted.
func (l *loop) release(b *scope, r guard.Round, now time.Time) {
	for _, x := range r.Released {
		if it := l.agenda.items[x.Service]; it != nil {
			for _, o := range it.orphans {
				if o.scope == b {
					o.released = cmp.Or(o.released, b.ended(x.Cause))
				}
			}
			l.agenda.touch(it, now)
		}
	}
	for _, group := range r.Free {
		if it := l.agenda.items[group]; it != nil {
			l.agenda.touch(it, now)
		}
	}
}

// ended says how the hold that is shown ended.
func (b *scope) ended(cause string) string {
	if b.held == nil {
		return "hold ended: " + cause
	}
	return "hold " + b.held.ID + " ended: " + cause
}

// warnOf counts and logs a hold that began, or would have.
func (l *loop) warnOf(b *scope, h *held) {
	l.observe(Observation{Kind: ObservedHold, Bridge: b.name, Op: "delete", Count: len(h.Entries)})
	l.opts.Log.Warn("deletions exceed what the guard permits", "bridge", b.name, "mode", b.guard.Options.Mode,
		"hold", h.ID, "entries", len(h.Entries), "reason", h.Reason, "ends", h.Release)
}

// showHold tells of a hold that began, changed or ended.
func (l *loop) showHold(b *scope, r guard.Round) {
	before := b.held
	b.held, b.denied = b.holdStatus(l.opts.Target, b.guard.Hold()), b.holdStatus(l.opts.Target, b.guard.Denied())
	if b.denied != nil {
		b.denied.Denied, b.denied.Reason, b.denied.Release = true, "a person denied it", releaseDenied
	}
	switch h := b.held; {
	case h == nil && before != nil:
		why := "nothing of it is to be deleted any more"
		if len(r.Released) > 0 {
			why = r.Released[0].Cause
		}
		l.tellEnd(b, before, cmp.Or(b.decided, why))
	case h != nil && before == nil:
		l.tellOf(h.Hold, "held back")
		l.warnOf(b, h)
	case h != nil && before.ID != h.ID:
		l.tellOf(h.Hold, "held back, its entries changed")
	case h != nil && before.Release != h.Release:
		l.tellOf(h.Hold, "held back, what ends it changed")
	}
	b.decided = ""
}

// tellEnd tells of a hold that ended. A person's decision was told of already.
func (l *loop) tellEnd(b *scope, h *held, why string) {
	if b.decided == "" {
		l.tell(Event{Kind: EventRelease, Bridge: b.name, Subject: h.ID, What: "hold ended", Why: why, Since: h.Since})
	}
	l.observe(Observation{Kind: ObservedRelease, Bridge: b.name, Op: "delete", Count: 1})
	l.opts.Log.Info("hold ended", "bridge", b.name, "hold", h.ID, "reason", why)
}
