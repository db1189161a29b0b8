package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// guards judge what may be deleted: one guard for each bridge, and one for each that
// is not configured any more and left something.
type guards struct {
	state *sharedState

	scopes         []*scope            // by bridge, and then those of bridges that are not configured
	withOrphans    map[*item]struct{}  // items with orphans
	awaitingRecord map[*item]time.Time // items with orphans that only wait for a record, and since when
}

// A scope is what one guard judges: the endpoints that the target stores of one
// bridge, which may be none of the loop's any more.
type scope struct {
	name            string
	index           int       // in guards.scopes; that of its bridge where there is one
	pipeline        *pipeline // nil: the bridge is none of the loop's, and claims nothing
	guard           *guard.Guard
	needsJudgement  bool       // since the guard judged last
	waitsForTime    bool       // the guard lets something go by time alone
	nextJudgementAt time.Time  // when it has to judge again; zero: not before something changes
	recheckedAt     time.Time  // when the source was last asked for a new connection
	hold            *shownHold // as it was published last; nil: nothing is
	denied          *shownHold // likewise
	decisionText    string     // what a person decided last about what is held
	recordPrefix    string     // what the names of its records begin with
}

// An orphan is a key of ours that the target stores and nobody claims.
type orphan struct {
	plan.Row
	item         *item
	scope        *scope    // of the bridge that claimed it last or, by its mark, wrote it
	author       string    // that bridge; empty: nobody claimed it, and it does not say
	waitsSince   time.Time // when it was first seen, or what waits began anew
	wasUnknown   bool      // at the last look the source could not report it
	releaseCause string    // how the hold ended that let it go; empty: none did
}

// missing reports whether its source did not report that it is gone.
func (o *orphan) missing() bool { return o.Origin.IsZero() || o.Evidence == plan.Missing }

func (o *orphan) entry() registry.Entry {
	return registry.Entry{Group: o.item.group, Key: o.Key, Value: o.Value}
}

// A verdict says whether an orphan may be deleted; where it may not, why, and
// from when on it may if time alone is missing.
type verdict struct {
	reason    Reason // empty: it may be deleted
	detail    string
	recheckAt time.Time // when the group is due again for it
	until     time.Time // when its wait ends, as it is shown; zero: not by time alone
	freedAt   time.Time // since when it waits for its record alone; zero: it does not
}

// judgeWait applies the wait of what is no endpoint. An entry of a group itself
// waits for as long as a loss counts: a source that begins cannot
// distinguish a service without an endpoint for a moment from one that ended, and
// consumers look for the next endpoint there.
func (o *orphan) judgeWait(now time.Time) verdict {
	opts := o.scope.guard.Options
	wait := opts.Settle
	if opts.Mode == GuardOff || !o.missing() && !registry.IsPart(o.Key) {
		wait = 0
	} else if wait > 0 && o.Key == registry.HeadKey {
		wait = max(wait, opts.Window)
	}
	if at := o.waitsSince.Add(wait); wait > 0 && now.Before(at) {
		return verdict{reason: ReasonWaiting, detail: "not reported by its source; settling for " + wait.String(), recheckAt: at, until: at}
	}
	return verdict{}
}

// scopeOf returns whose guard judges an orphan: that of the bridge that claimed
// it last or, by its mark or that of its head, wrote it. One without a mark is the
// first bridge's.
func (g *guards) scopeOf(o *orphan) *scope {
	if !o.Origin.IsZero() {
		return g.scopes[o.Origin.Bridge]
	}
	if g.state.opts.Author != nil {
		o.author = g.state.opts.Author(o.entry())
		if head, there := g.state.planner.Head(o.item.group); o.author == "" && there {
			o.author = g.state.opts.Author(head)
		}
	}
	if o.author == "" {
		return g.scopes[0]
	}
	if i := slices.IndexFunc(g.scopes, func(b *scope) bool { return b.name == o.author }); i >= 0 {
		return g.scopes[i]
	}
	return g.addScope(o.author, nil)
}

// veto applies the rules that hold whatever the guard is: the policy, and that
// nothing is deleted on ignorance.
func (g *guards) veto(o *orphan) verdict {
	keeps := Policy("")
	for _, w := range g.state.pipelines {
		if w == o.scope.pipeline || o.Origin.IsZero() && o.author == "" { // it may be of any
			keeps = cmp.Or(keeps, w.forbidding())
		}
	}
	for _, origin := range g.state.planner.FormerClaimants(o.item.group, o.Key) {
		keeps = cmp.Or(keeps, g.state.pipelines[origin.Bridge].forbidding())
	}
	if keeps != "" {
		return verdict{reason: ReasonReadOnly, detail: "policy " + string(keeps) + " keeps unclaimed entries"}
	}
	if err := g.unknownReason(o); err != nil {
		return verdict{reason: ReasonUnknown, detail: err.Error()}
	}
	return verdict{}
}

// unknownReason returns why it may not be believed that nobody claims a key: because
// of any service that claimed it; where none is known, of the bridge that wrote
// it or, of one that is not configured, of any that may have its services
// now; or of another replica that may claim it.
func (g *guards) unknownReason(o *orphan) error {
	for _, origin := range g.state.planner.FormerClaimants(o.item.group, o.Key) {
		if err := g.state.pipelines[origin.Bridge].unknownReason(origin.Service); err != nil {
			return err
		}
	}
	if !o.Origin.IsZero() {
		return nil
	}
	if g.state.opts.Differ != nil {
		if why := g.state.opts.Differ(); why != "" && !g.state.planner.Offered(o.item.group) {
			return errors.New(why)
		}
	}
	for _, w := range g.state.pipelines {
		reported := o.author == o.scope.name && o.scope.pipeline != nil
		if reported && w != o.scope.pipeline {
			continue
		}
		if err := w.unknownReasonOf(o.entry()); err != nil {
			return err
		}
	}
	return nil
}

// judge decides about an orphan. What is no endpoint settles as a
// missing endpoint does, for whoever still reads what it was sent before.
func (g *guards) judge(o *orphan, now time.Time) verdict {
	if v := g.veto(o); v.reason != "" {
		return v
	}
	b := o.scope
	if !registry.IsEndpoint(o.Key) {
		return o.judgeWait(now)
	}
	until := b.guard.Until(o.item.group, o.Key)
	switch b.guard.Fate(o.item.group, o.Key) {
	case guard.Free:
		if freed := b.guard.FreeSince(o.item.group, o.Key); g.state.records.isPending(b.recordOf(o.item.group), freed) {
			return verdict{reason: ReasonPending, detail: "its loss is being recorded", freedAt: freed}
		}
		return verdict{}
	case guard.Held:
		return verdict{reason: ReasonHeld, detail: b.hold.Reason}
	case guard.Denied:
		return verdict{reason: ReasonHeld, detail: "an operator denied its deletion"}
	case guard.Last:
		return verdict{reason: ReasonWaiting, detail: "the last endpoint of its service; waits for guard.lastEndpoint", until: until}
	case guard.Unreported:
		return verdict{reason: ReasonUnknown, detail: "the source cannot report"}
	case guard.Settling:
	}
	if !g.state.mayJudge() {
		return verdict{reason: ReasonWaiting, detail: "the target has not been read in full yet", recheckAt: now.Add(turnAtLeastEvery)}
	}
	settling := verdict{reason: ReasonWaiting, detail: "not reported by its source; settling for " + b.guard.Options.Settle.String(), until: until}
	if until.IsZero() { // it was not judged yet
		settling.recheckAt = now.Add(turnAtLeastEvery)
	}
	return settling
}

// recountOrphans brings what is known of the orphans of a group up to date, and reports
// to the guards what the target stores of their bridges there once what is claimed
// is added: a write adds and deletes at once.
func (g *guards) recountOrphans(it *item, now time.Time) {
	before, stored := it.orphans, make([]guard.Counts, len(g.state.pipelines)) // by scope
	it.orphans = nil
	if g.state.acts() {
		for row := range g.state.planner.Rows(it.group) {
			if row.Claimed {
				g.addClaimed(it, &stored[row.Origin.Bridge], row)
			} else {
				g.addOrphan(it, before[row.Key], row, now)
			}
		}
	}
	for key, o := range before {
		if it.orphans[key] != o && !o.Origin.IsZero() {
			g.state.pipelines[o.Origin.Bridge].countOrphans(o.Origin.Service, it.group, -1)
		}
	}
	if len(it.orphans) > 0 {
		g.withOrphans[it] = struct{}{}
	} else {
		delete(g.withOrphans, it)
	}
	g.reportStored(it, stored, now)
}

// addClaimed counts an endpoint that is claimed, unless it will not be stored: the target
// refuses it, or its provider deregistered.
func (g *guards) addClaimed(it *item, stored *guard.Counts, row plan.Row) {
	_, refused := it.refusals[row.Key]
	switch {
	case !registry.IsEndpoint(row.Key), (refused || g.state.drains.isDrained(it.group, row.Key)) && !row.Stored:
	case row.Stored:
		stored.Claimed++
	default:
		stored.Claimed++
		stored.New++
	}
}

// addOrphan adds an orphan to a group. One that was there before is kept.
func (g *guards) addOrphan(it *item, o *orphan, row plan.Row, now time.Time) {
	if o == nil || o.Row != row {
		o = &orphan{Row: row, item: it, waitsSince: now}
		o.scope = g.scopeOf(o)
		if !o.Origin.IsZero() {
			g.state.pipelines[o.Origin.Bridge].countOrphans(o.Origin.Service, it.group, +1)
		}
	}
	if it.orphans == nil {
		it.orphans = make(map[string]*orphan)
	}
	it.orphans[row.Key] = o
}

// reportStored reports to the guards what is stored in a group, with its orphans, once that
// is known.
func (g *guards) reportStored(it *item, stored []guard.Counts, now time.Time) {
	if _, unread := g.state.unread[it.group]; it.readAt.IsZero() && (unread || !it.isArrival && !g.state.planner.HoldsOurs(it.group)) {
		return
	}
	stored = append(stored, make([]guard.Counts, len(g.scopes)-len(stored))...)
	for key, o := range it.orphans {
		if s := &stored[o.scope.index]; registry.IsEndpoint(key) {
			if s.Unclaimed == nil {
				s.Unclaimed = make(map[string]guard.Report)
			}
			s.Unclaimed[key] = g.sourceReport(o, now)
		}
	}
	for i, b := range g.scopes {
		if it.isArrival { // nothing was written to it, and nothing is there
			stored[i] = guard.Counts{}
		}
		if b.guard.Observe(now, it.group, stored[i]) {
			b.needsJudgement = true
		}
	}
}

// sourceReport returns what the source reports of an orphan.
func (g *guards) sourceReport(o *orphan, now time.Time) guard.Report {
	v := g.veto(o)
	if o.wasUnknown && v.reason == "" {
		o.waitsSince = now
	}
	o.wasUnknown = v.reason != ""
	switch {
	case o.wasUnknown:
		return guard.Unknown
	case o.missing():
		return guard.Missing
	}
	return guard.Withdrawn
}

// judgementDue reports whether a guard has not judged yet what it observed.
func (g *guards) judgementDue() bool {
	return g.state.acts() && slices.ContainsFunc(g.scopes, func(b *scope) bool { return b.needsJudgement && (b.pipeline == nil || b.pipeline.complete()) })
}

// judgeAll has each guard judge whose facts or time have changed.
func (g *guards) judgeAll(s *step, now time.Time) {
	if !g.state.mayJudge() || !g.state.acts() {
		return
	}
	for i, b := range g.scopes {
		dials := 0
		if b.pipeline != nil {
			if dials = b.pipeline.certainty.Dials; !b.pipeline.complete() {
				continue
			}
		}
		if due := !b.nextJudgementAt.IsZero() && !now.Before(b.nextJudgementAt); b.needsJudgement || due {
			r := b.guard.Judge(now, dials)
			g.applyRound(b, r, now)
			if r.Reconnect && b.pipeline != nil && now.Sub(b.recheckedAt) >= b.guard.Options.Confirm/2 {
				b.recheckedAt, s.recheck = now, append(s.recheck, i)
			}
		}
		s.wakeAt(b.nextJudgementAt)
	}
}

// applyRound does what a judgement asks for.
func (g *guards) applyRound(b *scope, r guard.Round, now time.Time) {
	b.needsJudgement, b.nextJudgementAt, b.waitsForTime = false, r.Next, r.Waits
	g.storeRecords(b, r.Changed, now)
	g.touchReleased(b, r, now)
	if h := b.holdStatus(g.state.opts.Target, r.Warned); h != nil {
		g.state.journal.emitHold(h.Hold, "would be held back")
		g.state.journal.warnHold(b, h)
	}
	g.showHold(b, r, now)
}

// touchReleased makes the groups due in which something may be deleted.
func (g *guards) touchReleased(b *scope, r guard.Round, now time.Time) {
	for _, x := range r.Released {
		if it := g.state.agenda.items[x.Service]; it != nil {
			for _, o := range it.orphans {
				if o.scope == b {
					o.releaseCause = cmp.Or(o.releaseCause, b.holdEndText(x.Cause))
				}
			}
			g.state.agenda.touch(it, now)
		}
	}
	g.touchGroups(r.Free, now)
}

// touchGroups makes groups due.
func (g *guards) touchGroups(groups []registry.Group, now time.Time) {
	for _, group := range groups {
		if it := g.state.agenda.items[group]; it != nil {
			g.state.agenda.touch(it, now)
		}
	}
}

// addScope adds the scope of a bridge. A plan shows what is left once waits are
// over.
func (g *guards) addScope(name string, w *pipeline) *scope {
	o := DefaultGuard()
	if w != nil {
		o = w.Guard
	}
	if g.state.dry {
		o.Settle, o.LastEndpoint = 0, 0
	}
	sum := sha256.Sum256([]byte(name))
	b := &scope{name: name, index: len(g.scopes), pipeline: w, guard: guard.New(o, nil), recordPrefix: hex.EncodeToString(sum[:4])}
	g.restoreScope(b)
	g.scopes = append(g.scopes, b)
	return b
}

// restartWaits begins all waits of a scope anew.
func (g *guards) restartWaits(b *scope, now time.Time) {
	for it := range g.withOrphans {
		for _, o := range it.orphans {
			if o.scope == b {
				o.waitsSince = now
			}
		}
	}
	b.guard.Restart(now)
	b.needsJudgement = true
}

// resetScope forgets all that the guard of a scope knows: another replica judges, or did.
func (g *guards) resetScope(b *scope) {
	if b.hold != nil && !g.state.acts() {
		g.state.journal.emitHoldEnd(b, b.hold, "another replica leads now")
	}
	b.hold, b.denied, b.waitsForTime = nil, nil, false
	b.guard, b.needsJudgement = guard.New(b.guard.Options, nil), true
}

// recountAllOrphans makes every group due in which a deletion may have been waiting for
// more than time.
func (g *guards) recountAllOrphans(now time.Time) {
	for _, it := range sortItems(maps.Keys(g.withOrphans)) {
		g.recountOrphans(it, now)
		g.state.agenda.touch(it, now)
	}
}
