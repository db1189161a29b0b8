package bridge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Event is something that happened and that an operator may ask about later: what, why,
// since when, and what would end it.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    EventKind `json:"kind"`
	Target  string    `json:"target,omitempty"`
	Bridge  string    `json:"bridge,omitempty"`
	Subject string    `json:"subject,omitempty"` // a hold, service or group
	What    string    `json:"what"`
	Why     string    `json:"why,omitempty"`
	Who     string    `json:"who,omitempty"`     // who made the decision
	Since   time.Time `json:"since,omitzero"`    // when the state began that the event ends
	Release string    `json:"release,omitempty"` // what would end it, to be read after "it ends"

	Changes []EntryChange `json:"changes,omitempty"` // the first changes of an applied batch
}

// EventKind distinguishes events.
type EventKind string

// The kinds of events.
const (
	EventHold       EventKind = "hold"       // deletions are held back, or their set changed
	EventRelease    EventKind = "release"    // a hold ended
	EventDenied     EventKind = "denied"     // a hold was denied
	EventConflict   EventKind = "conflict"   // a claim cannot be honoured
	EventUnwritable EventKind = "unwritable" // no endpoint of a service can be written
	EventDrift      EventKind = "drift"      // our entries were changed by another writer
	EventRefused    EventKind = "refused"    // the target refuses a write, and a retry does not help
	EventSession    EventKind = "session"    // the target lost its session
	EventReload     EventKind = "reload"     // the configuration was reloaded or refused

	EventCondition EventKind = "condition" // a condition that status shows began or ended
	EventApplied   EventKind = "applied"   // a batch of changes was written
)

// A journal reports what happens, as events, observations and log lines.
type journal struct {
	state *sharedState

	now     time.Time // of the current turn
	failing int       // groups whose last call failed

	// When the last warning of each kind was logged.
	warnedAt  time.Time // about failures
	driftedAt time.Time // about drift
	refusedAt time.Time // about refused claims
}

// observe reports an observation, if the caller of the loop wants them.
func (j *journal) observe(o Observation) {
	if j.state.opts.Observe != nil {
		j.state.opts.Observe(o)
	}
}

// emit reports an event, if the caller of the loop wants them.
func (j *journal) emit(e Event) {
	if j.state.opts.OnEvent != nil {
		e.Time, e.Target = j.now, j.state.opts.Target
		j.state.opts.OnEvent(e)
	}
}

// emitHold reports a hold that began or changed.
func (j *journal) emitHold(h Hold, what string) {
	j.emit(Event{
		Kind: EventHold, Bridge: h.Bridge, Subject: h.ID, Why: h.Reason, Since: h.Since, Release: h.Release,
		What: what + ": " + registry.Counted(h.Count, "deletion", "deletions"),
	})
}

// logFailure logs a failed call. The first failure of an outage and the first refusal of a
// group are warnings, and then at most one failure in each Retry.Max.
func (j *journal) logFailure(o outcome, wait time.Duration, now time.Time) {
	level := j.state.opts.Log.Debug
	refused := o.item.refused() && o.item.attempts == 1
	if refused || j.failing == 1 && o.item.attempts == 1 || now.Sub(j.warnedAt) >= j.state.opts.Retry.Max {
		level, j.warnedAt = j.state.opts.Log.Warn, now
	}
	level("target call failed", "target", j.state.opts.Target, "step", o.op, "group", o.item.group.String(),
		"attempt", o.item.attempts, "groups_failing", j.failing, "retry_in", wait, "err", o.err)
}

// reportDrift reports a group that another writer changed since it was read or written.
// Only reads find drift, so another writer is not fought more often than a group is
// refreshed or read back. Drift that repeats is reported once more, and then only shown by
// status.
func (j *journal) reportDrift(it *item, now time.Time) {
	j.observe(Observation{Kind: ObservedDrift, Count: 1})
	e := Event{
		Kind: EventDrift, Subject: it.group.String(), What: "our entries were changed or removed by another writer",
		Why: "another writer changed them, or the registry lost them", Release: "when they are written again",
	}
	if n := len(it.lostKeys); n > 0 {
		e.Why = fmt.Sprintf("another writer deleted %d of them, or the registry lost them", n)
	}
	level := j.state.opts.Log.Debug
	switch {
	case it.mismatches > maxMismatches:
		return
	case it.mismatches == maxMismatches:
		j.reportOverride(it)
		return
	case now.Sub(j.driftedAt) >= j.state.opts.Retry.Max: // one warning for many
		level, j.driftedAt = j.state.opts.Log.Warn, now
	}
	j.emit(e)
	level("drift: our entries were changed or removed by another writer",
		"target", j.state.opts.Target, "group", it.group.String(), "reason", e.Why, "ends", e.Release)
}

// reportOverride reports a group in which another writer keeps overwriting our writes.
func (j *journal) reportOverride(it *item) {
	e := Event{
		Kind: EventDrift, Subject: it.group.String(), What: "our writes keep being overwritten",
		Why: overriddenText, Release: "when the other writer stops",
	}
	j.emit(e)
	j.state.opts.Log.Warn("our writes keep being overwritten",
		"target", j.state.opts.Target, "group", e.Subject, "reason", e.Why, "ends", e.Release)
}

// reportRefusals reports entries that the target refused for the first time.
func (j *journal) reportRefusals(it *item, err error) {
	j.emit(Event{
		Kind: EventRefused, Subject: it.group.String(), What: fmt.Sprintf("%d of its entries refused", len(it.refusals)),
		Why: err.Error(), Release: "when a retry succeeds; one is made every " + j.state.opts.Retry.Max.String(),
	})
	j.state.opts.Log.Warn("target refused entries",
		"target", j.state.opts.Target, "group", it.group.String(), "entries", len(it.refusals), "err", err)
}

// reportUnwritable reports a service of which no endpoint can be written, in at least one of
// its formats.
func (j *journal) reportUnwritable(p *pipeline, one *serviceProjection) {
	what, why := "without endpoints", one.service.detail
	if hasEndpoint(one.entries) {
		what = "not in all formats"
	}
	j.observe(Observation{Kind: ObservedUnwritable, Bridge: p.Name, Count: 1})
	j.emit(Event{Kind: EventUnwritable, Bridge: p.Name, Subject: string(one.name), What: what, Why: why})
	j.state.opts.Log.Warn("service cannot be written",
		"bridge", p.Name, "service", one.name, "result", what, "reason", why)
}

// describeWinner names the owner of the entry that a conflict is about.
func (j *journal) describeWinner(c plan.Conflict) string {
	who := "an entry without owner"
	switch {
	case c.Drained:
		return "its provider, which registered itself and then deregistered while the source still reports it: " +
			"our entry is written once the source has omitted it, " +
			"as when its pod restarts or select.exclude names it for one reload"
	case c.RivalClaim:
		return fmt.Sprintf("bridge %s, service %s", j.state.pipelines[c.Rival.Bridge].Name, c.Rival.Service)
	case c.Owner != "":
		who = "owner " + j.ownerName(c.Owner)
	}
	if c.OtherKey != "" {
		who += ", which has the address as " + c.OtherKey +
			": the protocol of our entry is a guess; formats[].rules can set it"
	}
	return who
}

// ownerName returns another owner as adopt, release and purge accept it: its name or, if
// unknown, its mark.
func (j *journal) ownerName(mark string) string {
	name := ""
	if j.state.opts.OwnerName != nil {
		name = j.state.opts.OwnerName(mark)
	}
	return cmp.Or(name, "mark:"+mark)
}

// warnHold counts and logs a hold that began, or would have.
func (j *journal) warnHold(b *scope, h *shownHold) {
	j.observe(Observation{Kind: ObservedHold, Bridge: b.name, Count: h.Count})
	j.state.opts.Log.Warn("deletions exceed what the guard allows", "bridge", b.name, "mode", b.guard.Options.Mode,
		"hold", h.ID, "entries", h.Count, "reason", h.Reason, "ends", h.Release)
}

// emitHoldEnd reports a hold that ended. The decision of an operator is already reported.
func (j *journal) emitHoldEnd(b *scope, h *shownHold, why string) {
	if b.decisionText == "" {
		j.emit(Event{Kind: EventRelease, Bridge: b.name, Subject: h.ID, What: "hold ended", Why: why, Since: h.Since})
	}
	j.state.opts.Log.Info("hold ended", "bridge", b.name, "hold", h.ID, "began_as", h.firstID, "reason", why)
}

// EntryChange is one entry that was written or deleted, for which service and why.
type EntryChange struct {
	Op      string        `json:"op"` // create, update, delete
	Key     string        `json:"key"`
	Bridge  string        `json:"bridge,omitempty"`
	Service registry.Name `json:"service,omitempty"` // claims the entry, or claimed it last; empty: unknown
	Cause   string        `json:"cause"`
	Before  string        `json:"before,omitempty"` // the value before
	After   string        `json:"after,omitempty"`  // the value after
}

// The changes of an entry.
const (
	opCreate = "create"
	opUpdate = "update"
	opDelete = "delete"
)

// Events are kept in memory, so an event has only the first changes of a batch, beginning
// with the deletions, and the first bytes of each value. The debug log has everything.
const (
	eventChanges = 10
	eventValue   = 1024
)

// reportWrite reports a write: each entry in the log, the batch as an event, and the number
// of entries of each bridge as observations. The claimants are those of change.Put.
func (j *journal) reportWrite(o outcome, claimants []plan.Origin, now time.Time) {
	type bridgeOp struct{ bridge, op string }
	counts := make(map[bridgeOp]int, 1)
	for i, w := range o.change.Put {
		counts[bridgeOp{j.bridgeOf(o.item, w.New.Key, claimants[i]), writeOp(w)}]++
	}
	for _, h := range o.change.Delete {
		counts[bridgeOp{j.bridgeOf(o.item, h.Key, j.state.planner.Winner(o.item.group, h.Key)), opDelete}]++
	}
	ops := make(map[string]int, 1)
	byName := func(a, b bridgeOp) int { return cmp.Compare(a.bridge+a.op, b.bridge+b.op) }
	for _, k := range slices.SortedFunc(maps.Keys(counts), byName) {
		ops[k.op] += counts[k]
		j.observe(Observation{
			Kind: ObservedApplied, Bridge: k.bridge, Op: k.op, Count: counts[k],
			Took: now.Sub(o.began), Latency: now.Sub(o.firstChange),
		})
	}
	if debug := j.state.opts.Log.Enabled(context.Background(), slog.LevelDebug); j.state.opts.OnEvent != nil || debug {
		what := fmt.Sprintf("entries: %d created, %d updated, %d deleted", ops[opCreate], ops[opUpdate], ops[opDelete])
		j.reportEntries(o, claimants, debug, what)
	}
}

// bridgeOf returns the name of the bridge that claims a key or claimed it last; empty if
// unknown.
func (j *journal) bridgeOf(it *item, key string, claimant plan.Origin) string {
	if !claimant.IsZero() {
		return j.state.pipelines[claimant.Bridge].Name
	}
	if o := it.orphans[key]; o != nil {
		return o.scope.name
	}
	return ""
}

// writeOp returns what a write does to an entry. An entry that ended with a lost session is
// created: the write replaces nothing.
func writeOp(w registry.Write) string {
	if w.Adds() || lostWithSession(w) {
		return opCreate
	}
	return opUpdate
}

// lostWithSession reports whether a write restores an entry of an earlier session.
func lostWithSession(w registry.Write) bool { return w.Old != nil && !w.Old.Live }

// reportEntries logs each entry of a batch, and emits the batch as an event. After an
// incident the log says what was deleted, when and why.
//
//nolint:revive // debug is a fact about the log, not a mode
func (j *journal) reportEntries(o outcome, claimants []plan.Origin, debug bool, what string) {
	logged := make([]EntryChange, 0, min(len(o.change.Delete)+len(o.change.Put), eventChanges))
	add := func(c EntryChange) {
		if debug {
			j.state.opts.Log.Debug("entry written",
				"target", j.state.opts.Target, "group", o.item.group.String(), "op", c.Op, "key", c.Key,
				"bridge", c.Bridge, "service", c.Service, "reason", c.Cause, "before", c.Before, "after", c.After)
		}
		if len(logged) < eventChanges {
			c.Before, c.After = shortenValue(c.Before), shortenValue(c.After)
			logged = append(logged, c)
		}
	}
	for _, h := range o.change.Delete {
		c := j.explainEntry(o.item, h.Key, opDelete, j.state.planner.Winner(o.item.group, h.Key))
		c.Before = h.Value
		add(c)
	}
	for i, w := range o.change.Put {
		c := j.explainEntry(o.item, w.New.Key, writeOp(w), claimants[i])
		c.After = w.New.Value
		switch {
		case lostWithSession(w):
			c.Cause = "its session was lost, and its service still reports it"
		case w.Old != nil:
			c.Before = w.Old.Value
		}
		if debug || len(logged) < eventChanges {
			add(c)
		}
	}
	j.emit(Event{
		Kind: EventApplied, Bridge: commonBridge(logged), Subject: o.item.group.String(), What: what, Changes: logged,
	})
}

// explainEntry returns for which service an entry was written or deleted, and why.
func (j *journal) explainEntry(it *item, key, op string, claimant plan.Origin) EntryChange {
	c := EntryChange{Op: op, Key: key, Bridge: j.bridgeOf(it, key, claimant), Service: claimant.Service}
	orphan := it.orphans[key]
	if orphan != nil && claimant.IsZero() {
		c.Service = orphan.Origin.Service
	}
	switch {
	case op == opCreate && slices.Contains(it.lostKeys, key):
		c.Cause = "another writer deleted it or the registry lost it, and its service still reports it"
	case op == opCreate:
		c.Cause = "its service reports it"
	case op == opUpdate:
		c.Cause = "it differs from what its service reports"
	case orphan == nil:
		c.Cause = "another entry replaces it, or it was not reported when the write began"
	case orphan.releaseCause != "":
		c.Cause = orphan.releaseCause
	case orphan.Origin.IsZero():
		c.Cause = "no bridge has claimed it since the start"
	case orphan.missing():
		c.Cause = "full reads of its source have not shown it since " + orphan.waitsSince.UTC().Format(time.RFC3339)
	default:
		c.Cause = "its service has not reported it since " + orphan.waitsSince.UTC().Format(time.RFC3339)
	}
	return c
}

// commonBridge returns the bridge of all changes; empty if there are several.
func commonBridge(changes []EntryChange) string {
	first := changes[0].Bridge
	if slices.ContainsFunc(changes, func(c EntryChange) bool { return c.Bridge != first }) {
		return ""
	}
	return first
}

// shortenValue returns the part of a value that an event has.
func shortenValue(value string) string {
	if len(value) <= eventValue {
		return value
	}
	return strings.ToValidUTF8(value[:eventValue], "") + "…"
}
