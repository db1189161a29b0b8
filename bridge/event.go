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

// Event is something that happened and that a person may ask about later:
// what, why, since when, and what would end it.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    EventKind `json:"kind"`
	Target  string    `json:"target,omitempty"`
	Bridge  string    `json:"bridge,omitempty"`
	Subject string    `json:"subject,omitempty"` // the hold, service or group that it is about
	What    string    `json:"what"`
	Why     string    `json:"why,omitempty"`
	Who     string    `json:"who,omitempty"`     // who decided it
	Since   time.Time `json:"since,omitzero"`    // of what it ends
	Release string    `json:"release,omitempty"` // what would end it, as it follows "it ends"

	Changes []EntryChange `json:"changes,omitempty"` // of a batch that was applied, the first of them
}

// EventKind distinguishes events.
type EventKind string

// The kinds of events.
const (
	EventHold       EventKind = "hold"       // deletions began to be held back, or their set changed
	EventRelease    EventKind = "release"    // a hold ended
	EventDenied     EventKind = "denied"     // a hold was denied
	EventConflict   EventKind = "conflict"   // a claim cannot be honoured
	EventUnwritable EventKind = "unwritable" // no endpoint of a service can be written
	EventDrift      EventKind = "drift"      // another changed what was written
	EventRefused    EventKind = "refused"    // the target refuses a write, and repeating does not help
	EventSession    EventKind = "session"    // the target lost its session
	EventReload     EventKind = "reload"     // the configuration was reloaded or refused

	EventCondition EventKind = "condition" // something that status shows began or ended
	EventApplied   EventKind = "applied"   // a batch of changes was written
)

// A journal reports what happens: events, observations and the log.
type journal struct {
	state *sharedState

	now       time.Time
	failing   int       // groups whose last call failed
	warnedAt  time.Time // when that was last logged
	driftedAt time.Time // when drift was last logged
	refusedAt time.Time // when a refused claim was last logged
}

func (j *journal) observe(o Observation) {
	if j.state.opts.Observe != nil {
		j.state.opts.Observe(o)
	}
}

// emit reports an event, where anybody listens.
func (j *journal) emit(e Event) {
	if j.state.opts.OnEvent != nil {
		e.Time, e.Target = j.now, j.state.opts.Target
		j.state.opts.OnEvent(e)
	}
}

// emitHold reports a hold that is new or whose entries changed.
func (j *journal) emitHold(h Hold, what string) {
	j.emit(Event{
		Kind: EventHold, Bridge: h.Bridge, Subject: h.ID, Why: h.Reason, Since: h.Since, Release: h.Release,
		What: what + ": " + registry.Counted(h.Count, "deletion", "deletions"),
	})
}

// logFailure logs failures: the first of an outage, each first refusal, and
// then no more than one in a while.
func (j *journal) logFailure(o outcome, wait time.Duration, now time.Time) {
	level := j.state.opts.Log.Debug
	refused := o.item.refused() && o.item.attempts == 1
	if refused || j.failing == 1 && o.item.attempts == 1 || now.Sub(j.warnedAt) >= j.state.opts.Retry.Max {
		level, j.warnedAt = j.state.opts.Log.Warn, now
	}
	level("target call failed", "target", j.state.opts.Target, "step", o.op, "group", o.item.group.String(),
		"attempt", o.item.attempts, "groups_failing", j.failing, "retry_in", wait, "err", o.err)
}

// reportDrift reports a group that another changed since it was written or read.
// Restoring it waits for the next reading, so that no other writer is fought
// more often than a group is refreshed or read back. What stays so is reported
// once more, and then shown by status alone.
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
	case now.Sub(j.driftedAt) >= j.state.opts.Retry.Max: // the first of many
		level, j.driftedAt = j.state.opts.Log.Warn, now
	}
	j.emit(e)
	level("drift: our entries were changed or removed by another writer", "target", j.state.opts.Target, "group", it.group.String(), "reason", e.Why, "ends", e.Release)
}

// reportOverride reports a group that others keep otherwise than it is written.
func (j *journal) reportOverride(it *item) {
	e := Event{
		Kind: EventDrift, Subject: it.group.String(), What: "our writes keep being overwritten",
		Why: overriddenText, Release: "when the other writer stops",
	}
	j.emit(e)
	j.state.opts.Log.Warn("our writes keep being overwritten", "target", j.state.opts.Target, "group", e.Subject, "reason", e.Why, "ends", e.Release)
}

// reportRefusals reports a refusal that is new.
func (j *journal) reportRefusals(it *item, err error) {
	j.emit(Event{
		Kind: EventRefused, Subject: it.group.String(), What: fmt.Sprintf("%d of its entries refused", len(it.refusals)),
		Why: err.Error(), Release: "when a retry succeeds; one is made every " + j.state.opts.Retry.Max.String(),
	})
	j.state.opts.Log.Warn("target refused entries", "target", j.state.opts.Target, "group", it.group.String(), "entries", len(it.refusals), "err", err)
}

// reportUnwritable reports a service of which no endpoint can be written, in one of its
// formats at least.
func (j *journal) reportUnwritable(w *pipeline, one *serviceProjection) {
	what := "without endpoints" // what was written of it goes
	if slices.ContainsFunc(one.entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) }) {
		what = "not in all formats"
	}
	j.observe(Observation{Kind: ObservedUnwritable, Bridge: w.Name, Count: 1})
	j.emit(Event{Kind: EventUnwritable, Bridge: w.Name, Subject: string(one.name), What: what, Why: one.service.detail})
	j.state.opts.Log.Warn("service cannot be written", "bridge", w.Name, "service", one.name, "result", what, "reason", one.service.detail)
}

// describeWinner names who has what a conflict is about.
func (j *journal) describeWinner(c plan.Conflict) string {
	who := "an entry without owner"
	switch {
	case c.Drained:
		return "its provider, which registered itself and then deregistered while the source still reports it: our entry is written once the source has omitted it, " +
			"as when its pod restarts or select.exclude names it for one reload"
	case c.RivalClaim:
		return fmt.Sprintf("bridge %s, service %s", j.state.pipelines[c.Rival.Bridge].Name, c.Rival.Service)
	case c.Owner != "":
		who = "owner " + j.ownerName(c.Owner)
	}
	if c.OtherKey != "" {
		who += ", which has the address as " + c.OtherKey + ": the protocol of our entry is a guess; formats[].rules can set it"
	}
	return who
}

// ownerName returns another owner as adopt, release and purge accept it: by its name or, if
// that is not known, by its mark.
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

// emitHoldEnd reports a hold that ended. A person's decision was reported already.
func (j *journal) emitHoldEnd(b *scope, h *shownHold, why string) {
	if b.decisionText == "" {
		j.emit(Event{Kind: EventRelease, Bridge: b.name, Subject: h.ID, What: "hold ended", Why: why, Since: h.Since})
	}
	j.state.opts.Log.Info("hold ended", "bridge", b.name, "hold", h.ID, "began_as", h.firstID, "reason", why)
}

// EntryChange is one entry that was written or deleted, for whom and why.
type EntryChange struct {
	Op      string        `json:"op"` // create, update, delete
	Key     string        `json:"key"`
	Bridge  string        `json:"bridge,omitempty"`
	Service registry.Name `json:"service,omitempty"` // that claims it, or claimed it last; empty where nobody is known
	Cause   string        `json:"cause"`
	Before  string        `json:"before,omitempty"` // its value
	After   string        `json:"after,omitempty"`
}

// What an entry can be done to.
const (
	opCreate = "create"
	opUpdate = "update"
	opDelete = "delete"
)

// An event has so many changes of a batch, the deletions first, and so much of
// each value: events are kept in memory. The log has all of it at level debug.
const (
	eventChanges = 10
	eventValue   = 1024
)

// reportWrite reports the entries that were written, and who claims each that was put:
// each in the log, the batch as an event, and how many they were of each bridge.
func (j *journal) reportWrite(o outcome, claimants []plan.Origin, now time.Time) {
	type of struct{ bridge, op string }
	counts := make(map[of]int, 1)
	for i, w := range o.change.Put {
		counts[of{j.bridgeOf(o.item, w.New.Key, claimants[i]), writeOp(w)}]++
	}
	for _, h := range o.change.Delete {
		counts[of{j.bridgeOf(o.item, h.Key, j.state.planner.Winner(o.item.group, h.Key)), opDelete}]++
	}
	ops := make(map[string]int, 1)
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b of) int { return cmp.Compare(a.bridge+a.op, b.bridge+b.op) }) {
		ops[k.op] += counts[k]
		j.observe(Observation{
			Kind: ObservedApplied, Bridge: k.bridge, Op: k.op, Count: counts[k],
			Took: now.Sub(o.began), Latency: now.Sub(o.firstChange),
		})
	}
	if debug := j.state.opts.Log.Enabled(context.Background(), slog.LevelDebug); j.state.opts.OnEvent != nil || debug {
		j.reportEntries(o, claimants, debug, fmt.Sprintf("entries: %d created, %d updated, %d deleted", ops[opCreate], ops[opUpdate], ops[opDelete]))
	}
}

// bridgeOf returns the bridge that claims a key or claimed it last.
func (j *journal) bridgeOf(it *item, key string, claimant plan.Origin) string {
	if !claimant.IsZero() {
		return j.state.pipelines[claimant.Bridge].Name
	}
	if o := it.orphans[key]; o != nil {
		return o.scope.name
	}
	return ""
}

// writeOp returns what a write does to an entry. One that a lost session took with it is
// created, as nobody found it: the write replaces nothing.
func writeOp(w registry.Write) string {
	if w.Adds() || lostWithSession(w) {
		return opCreate
	}
	return opUpdate
}

// lostWithSession reports whether a write restores what an earlier session held.
func lostWithSession(w registry.Write) bool { return w.Old != nil && !w.Old.Live }

// reportEntries logs a batch entry by entry: after an incident the log says what was
// deleted, when and why.
func (j *journal) reportEntries(o outcome, claimants []plan.Origin, debug bool, what string) { //nolint:revive // a choice, not a mode
	logged := make([]EntryChange, 0, min(len(o.change.Delete)+len(o.change.Put), eventChanges))
	add := func(c EntryChange) {
		if debug {
			j.state.opts.Log.Debug("entry written", "target", j.state.opts.Target, "group", o.item.group.String(), "op", c.Op, "key", c.Key,
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
			c.Cause = "the session that held it was lost, and its service still reports it"
		case w.Old != nil:
			c.Before = w.Old.Value
		}
		if debug || len(logged) < eventChanges {
			add(c)
		}
	}
	j.emit(Event{Kind: EventApplied, Bridge: commonBridge(logged), Subject: o.item.group.String(), What: what, Changes: logged})
}

// explainEntry says for whom an entry was written or deleted, and why.
func (j *journal) explainEntry(it *item, key, op string, claimant plan.Origin) EntryChange {
	c := EntryChange{Op: op, Key: key, Bridge: j.bridgeOf(it, key, claimant), Service: claimant.Service}
	s := it.orphans[key]
	if s != nil && claimant.IsZero() {
		c.Service = s.Origin.Service
	}
	switch {
	case op == opCreate && slices.Contains(it.lostKeys, key):
		c.Cause = "another writer deleted it or the registry lost it, and its service still reports it"
	case op == opCreate:
		c.Cause = "its service reports it"
	case op == opUpdate:
		c.Cause = "it differs from what its service reports"
	case s == nil:
		c.Cause = "another entry replaces it, or it was not reported when the write began"
	case s.releaseCause != "":
		c.Cause = s.releaseCause
	case s.Origin.IsZero():
		c.Cause = "no bridge has claimed it since the start"
	case s.missing():
		c.Cause = "full reads of its source have not shown it since " + s.waitsSince.UTC().Format(time.RFC3339)
	default:
		c.Cause = "its service has not reported it since " + s.waitsSince.UTC().Format(time.RFC3339)
	}
	return c
}

// commonBridge returns the bridge that all changes are of, empty where there are several.
func commonBridge(changes []EntryChange) string {
	first := changes[0].Bridge
	if slices.ContainsFunc(changes, func(c EntryChange) bool { return c.Bridge != first }) {
		return ""
	}
	return first
}

func shortenValue(value string) string {
	if len(value) <= eventValue {
		return value
	}
	return strings.ToValidUTF8(value[:eventValue], "") + "…"
}
