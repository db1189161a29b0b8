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

// guards judge deletions: one guard for each bridge, and one for each bridge that is no
// longer configured and left entries.
type guards struct {
	state *sharedState

	scopes         []*scope            // by the index of their bridge; then those of bridges that are not configured
	withOrphans    map[*item]struct{}  // the items that have orphans
	awaitingRecord map[*item]time.Time // since when the orphans of an item only wait for a record
}

// A scope is what one guard judges: the endpoints of one bridge that the target stores. The
// bridge need not be configured.
type scope struct {
	// Immutable.
	name         string
	index        int       // in guards.scopes
	pipeline     *pipeline // nil: the bridge is not configured, and claims nothing
	recordPrefix string    // of the names of the guard's records

	guard           *guard.Guard
	needsJudgement  bool      // facts changed since the last judgement
	waitsForTime    bool      // a candidate waits only for time
	nextJudgementAt time.Time // zero: after the next change
	recheckedAt     time.Time // when Bridge.Recheck was last requested

	// As they were last shown.
	hold         *shownHold // nil: none
	denied       *shownHold // nil: none
	decisionText string     // the last decision about the hold, until the hold is shown again
}

// An orphan is one of our entries that the target stores and that is unclaimed.
type orphan struct {
	plan.Row
	item *item

	author string // the bridge that wrote the entry, if its last claimant is unknown; empty: unknown, too
	scope  *scope // of the bridge that claimed it last, or of its author

	waitsSince   time.Time // when the orphan was first seen, or when waits last began again
	wasUnknown   bool      // its source could not report it at the last recount
	releaseCause string    // how the hold ended that released it; empty: it was not held
}

// missing reports whether the source did not report the removal of the entry.
func (o *orphan) missing() bool { return o.Origin.IsZero() || o.Evidence == plan.Missing }

func (o *orphan) entry() registry.Entry {
	return registry.Entry{Group: o.item.group, Key: o.Key, Value: o.Value}
}

// A verdict says whether an orphan may be deleted and, if not, why and until when.
type verdict struct {
	reason    Reason // empty: it may be deleted
	detail    string
	recheckAt time.Time // when its group is due again for the deletion; zero: another event makes it due
	until     time.Time // when the shown wait ends; zero: not by time alone
	freedAt   time.Time // since when it only waits for its record; zero: it does not
}

// judgeWait decides how long an entry that is not an endpoint (a head or a part) waits
// before it may be deleted. A head waits for as long as a loss counts, because consumers wait
// there for the next endpoint. A source that has just started cannot distinguish a service
// without endpoints from one that ended.
func (o *orphan) judgeWait(now time.Time) verdict {
	opts := o.scope.guard.Options
	wait := opts.Settle
	if opts.Mode == GuardOff || !o.missing() && !registry.IsPart(o.Key) {
		wait = 0
	} else if wait > 0 && o.Key == registry.HeadKey {
		wait = max(wait, opts.Window)
	}
	if at := o.waitsSince.Add(wait); wait > 0 && now.Before(at) {
		return verdict{reason: ReasonWaiting, detail: settlingText(wait), recheckAt: at, until: at}
	}
	return verdict{}
}

// settlingText is the detail of an entry that waits because its source no longer reports it.
func settlingText(wait time.Duration) string {
	return "not reported by its source; settling for " + wait.String()
}

// scopeOf returns the scope that judges an orphan: that of the bridge that claimed it last
// or, by its mark or that of its head, wrote it. If neither is known, the first bridge's.
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

// veto applies the rules that are independent of the guard: the policy, and that nothing is
// deleted on ignorance. The verdict of an orphan that passes has no reason.
func (g *guards) veto(o *orphan) verdict {
	keeps := Policy("")
	isAuthorUnknown := o.Origin.IsZero() && o.author == ""
	for _, p := range g.state.pipelines {
		if p == o.scope.pipeline || isAuthorUnknown {
			keeps = cmp.Or(keeps, p.forbidding())
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

// unknownReason returns why an orphan may be claimed without this process knowing it; nil if
// it is known to be unclaimed. The reason is the first that applies:
//   - the source cannot report a service that claimed the key;
//   - if no such service is known, another replica is configured differently;
//   - or the source of the bridge that wrote the entry cannot report it. If that bridge is
//     not configured, any source may report its services now.
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
	isAuthorKnown := o.author == o.scope.name && o.scope.pipeline != nil
	for _, p := range g.state.pipelines {
		if isAuthorKnown && p != o.scope.pipeline {
			continue
		}
		if err := p.unknownReasonOf(o.entry()); err != nil {
			return err
		}
	}
	return nil
}

// judge decides whether an orphan may be deleted. Entries that are not endpoints settle like
// missing endpoints, for consumers that still use what they read before.
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
		freed := b.guard.FreeSince(o.item.group, o.Key)
		if g.state.records.isPending(b.recordOf(o.item.group), freed) {
			return verdict{reason: ReasonPending, detail: "its loss is being recorded", freedAt: freed}
		}
		return verdict{}
	case guard.Held:
		return verdict{reason: ReasonHeld, detail: b.hold.Reason}
	case guard.Denied:
		return verdict{reason: ReasonHeld, detail: "an operator denied its deletion"}
	case guard.Last:
		detail := "the last endpoint of its service; waits for guard.lastEndpoint"
		return verdict{reason: ReasonWaiting, detail: detail, until: until}
	case guard.Unreported:
		return verdict{reason: ReasonUnknown, detail: "the source cannot report it"}
	case guard.Settling:
	}
	if !g.state.mayJudge() {
		detail := "the target has not been read in full yet"
		return verdict{reason: ReasonWaiting, detail: detail, recheckAt: now.Add(turnAtLeastEvery)}
	}
	settling := verdict{reason: ReasonWaiting, detail: settlingText(b.guard.Options.Settle), until: until}
	if until.IsZero() { // the guard has not judged it yet
		settling.recheckAt = now.Add(turnAtLeastEvery)
	}
	return settling
}

// recountOrphans updates the orphans of a group, and reports the endpoints of each bridge to
// its guard. Claimed endpoints that are not stored yet count, because one write adds and
// deletes.
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

// addClaimed counts a claimed endpoint, unless it will not be stored: the target refuses it,
// or its provider deregistered.
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

// addOrphan adds an orphan to a group: the given one, as it was before, if it still fits.
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

// reportStored reports to the guards what a group stores, with its orphans. It reports
// nothing until the group was read.
func (g *guards) reportStored(it *item, stored []guard.Counts, now time.Time) {
	_, unread := g.state.unread[it.group]
	if it.readAt.IsZero() && (unread || !it.isArrival && !g.state.planner.StoresOurs(it.group)) {
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
		if it.isArrival { // the group stores none of our entries yet
			stored[i] = guard.Counts{}
		}
		if b.guard.Observe(now, it.group, stored[i]) {
			b.needsJudgement = true
		}
	}
}

// sourceReport returns what the source reports of an orphan. When the source can report it
// again, its wait begins again.
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

// judgementDue reports whether a guard has facts that it can judge and has not judged yet.
func (g *guards) judgementDue() bool {
	return g.state.acts() && slices.ContainsFunc(g.scopes, func(b *scope) bool {
		return b.needsJudgement && (b.pipeline == nil || b.pipeline.complete())
	})
}

// judgeAll has each guard judge whose facts changed or whose time has come.
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

// applyRound applies a judgement: it stores records, makes groups due, and shows the hold.
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

// touchReleased makes the groups due that a judgement released or freed.
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

// addScope adds the scope of a bridge; the pipeline is nil for one that is not configured. A
// dry loop has no waits: it shows what is deleted after them.
func (g *guards) addScope(name string, p *pipeline) *scope {
	o := DefaultGuard()
	if p != nil {
		o = p.Guard
	}
	if g.state.dry {
		o.Settle, o.LastEndpoint = 0, 0
	}
	sum := sha256.Sum256([]byte(name))
	b := &scope{
		name: name, index: len(g.scopes), pipeline: p, recordPrefix: hex.EncodeToString(sum[:4]),
		guard: guard.New(o, nil),
	}
	g.restoreScope(b)
	g.scopes = append(g.scopes, b)
	return b
}

// restartWaits begins all waits of a scope again.
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

// resetScope forgets all facts of a scope's guard, after the leadership changed.
func (g *guards) resetScope(b *scope) {
	if b.hold != nil && !g.state.acts() {
		g.state.journal.emitHoldEnd(b, b.hold, "another replica leads now")
	}
	b.hold, b.denied, b.waitsForTime = nil, nil, false
	b.guard, b.needsJudgement = guard.New(b.guard.Options, nil), true
}

// recountAllOrphans recounts every group with orphans and makes it due, after something
// changed that their deletions may wait for.
func (g *guards) recountAllOrphans(now time.Time) {
	for _, it := range sortItems(maps.Keys(g.withOrphans)) {
		g.recountOrphans(it, now)
		g.state.agenda.touch(it, now)
	}
}
