package admin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Condition is a problem that keeps the bridge from being in sync, or that an operator
// should look at. All outputs are computed from one list of conditions, so that they never
// contradict each other: the first line, the exit code and the column STATE of status, the
// JSON, the events and the metric xdsbridge_condition.
type Condition struct {
	Direction Direction     `json:"direction"`
	Registry  string        `json:"registry,omitempty"` // name of the source or target; empty for the process
	Name      ConditionName `json:"condition"`
	Bridge    string        `json:"bridge,omitempty"` // if only one bridge is affected
	Detail    string        `json:"detail,omitempty"`
	Since     time.Time     `json:"since"`

	// Until is when the condition ends by itself, or with the next read after that. A
	// condition with Until does not count against being in sync.
	Until time.Time `json:"until,omitzero"`
}

// Direction is what has a condition: a source, a target or the process.
type Direction string

// The directions of conditions.
const (
	OfSource  Direction = "source"
	OfTarget  Direction = "target"
	OfProcess Direction = "process"
)

// ConditionName is the name of a kind of condition.
type ConditionName string

// The conditions, the worst first.
const (
	OwnerConflict    ConditionName = "owner-conflict"    // another bridge of this owner writes there, or the owner changed
	Unreachable      ConditionName = "unreachable"       // no connection to a target
	NoReader         ConditionName = "no-reader"         // no client reads a served target
	Pending          ConditionName = "pending"           // not read in full yet
	Stale            ConditionName = "stale"             // the services of a source may be out of date
	ReloadRefused    ConditionName = "reload-refused"    // the last configuration that was read is not applied
	LeaseUnreachable ConditionName = "lease-unreachable" // the lease record is unreachable
	MissingReplica   ConditionName = "replica-missing"   // fewer replicas run than are expected
	Failing          ConditionName = "failing"           // calls to a target fail, or it has another error
	Unwatched        ConditionName = "unwatched"         // changes of others are seen only when a target is read again
	Unrecorded       ConditionName = "unrecorded"        // records that must outlive the process are not stored
	Refused          ConditionName = "refused"           // a target rejects entries
	Unwritable       ConditionName = "unwritable"        // services cannot be written
	Held             ConditionName = "held"              // the guard holds deletions
	Denied           ConditionName = "denied"            // an operator denied the deletion of unclaimed entries
	Partial          ConditionName = "partial"           // a source cannot report some of its services
	Conflicting      ConditionName = "conflict"          // foreign entries are in the place of desired entries
	Idle             ConditionName = "idle"              // a bridge has no desired entries
	Syncing          ConditionName = "syncing"           // writes are due
)

// ConditionsOf returns the conditions that a direction can have, the worst first.
func ConditionsOf(d Direction) []ConditionName {
	switch d {
	case OfSource:
		return []ConditionName{Pending, Stale, Partial}
	case OfTarget:
		return []ConditionName{
			OwnerConflict, Unreachable, NoReader, Pending, Failing, Unwatched, Unrecorded, Refused, Unwritable,
			Held, Denied, Conflicting, Idle, Syncing,
		}
	default:
		return []ConditionName{ReloadRefused, LeaseUnreachable, MissingReplica, Unrecorded}
	}
}

// needsEvent reports whether no other kind of event shows the begin and end of a
// condition.
func (c Condition) needsEvent() bool {
	return !slices.Contains([]ConditionName{ReloadRefused, Held, Conflicting, Unwritable, Syncing}, c.Name)
}

// needsLog reports whether no other log lines show the begin and end of a condition.
// Syncing is left out because it begins and ends with each write.
func (c Condition) needsLog() bool {
	return !slices.Contains([]ConditionName{ReloadRefused, Held, Syncing}, c.Name)
}

// Lasts reports whether a condition remains until something is done about it.
func (c Condition) Lasts() bool { return c.Until.IsZero() }

// key returns the fields that identify a condition.
func (c Condition) key() Condition {
	return Condition{Direction: c.Direction, Registry: c.Registry, Name: c.Name, Bridge: c.Bridge}
}

func (c Condition) subject() string {
	return strings.TrimSpace(string(c.Direction) + " " + c.Registry)
}

// Conditions returns the present conditions: of each source, of each target and of the
// process, each from the worst on. It waits for no loop.
func (rep *reporter) Conditions() []Condition { return rep.Overview().Conditions }

// conditions returns the present conditions. The states of the loops may be summaries.
func (rep *reporter) conditions(loops []bridge.Status, replicas *Replicas) []Condition {
	all := []Condition{}
	for _, in := range rep.current().inputs {
		all = append(all, conditionsOfSource(in)...)
	}
	for i, t := range rep.current().targets {
		if i < len(loops) && loops[i].Target == t.Name { // else a reload replaced the targets
			all = append(all, conditionsOfTarget(t, loops[i])...)
		}
	}
	all = append(all, rep.conditionsOfProcess(replicas)...)
	now := time.Now()
	rep.mu.Lock()
	defer rep.mu.Unlock()
	for i, c := range all {
		if !c.Since.IsZero() { // set by its origin
			continue
		}
		all[i].Since = now
		if since, known := rep.since[c.key()]; known {
			all[i].Since = since
		}
	}
	return all
}

// conditionList collects the conditions of one source or target.
type conditionList struct {
	direction Direction
	name      string
	all       []Condition
}

// add adds a condition with a detail. An empty detail means that there is no such
// condition.
func (g *conditionList) add(name ConditionName, detail string) {
	if detail != "" {
		g.all = append(g.all, Condition{Direction: g.direction, Registry: g.name, Name: name, Detail: detail})
	}
}

// addCounted adds a condition whose detail begins with a count. A count of zero means that
// there is no such condition.
func (g *conditionList) addCounted(name ConditionName, n int, one, many, suffix string) {
	if n > 0 {
		g.add(name, registry.Counted(n, one, many)+suffix)
	}
}

// conditionsOfSource returns the conditions of a source, the worst first.
func conditionsOfSource(in Input) []Condition {
	sum, state := in.Table.Summary(), in.State()
	g := conditionList{direction: OfSource, name: in.Name}
	if !sum.Synced {
		g.add(Pending, cmp.Or(state.LastError, "the source has not reported everything yet"))
	}
	if sum.Stale != nil {
		g.add(Stale, sum.Stale.Error())
	}
	switch m := state.Mapping; {
	case sum.Unknown == 1 && m != nil && !m.Until.IsZero(): // service keys may return with the clients of istiod
		g.add(Partial, sum.Scope+": "+sum.Why.Error())
		if m.LastError == "" { // otherwise no later read ends the condition
			g.all[len(g.all)-1].Until = m.Until
		}
	case sum.Unknown == 1:
		g.add(Partial, fmt.Sprintf("the entries of %s remain: %v", sum.Scope, sum.Why))
	case sum.Unknown > 1:
		g.add(Partial, fmt.Sprintf("the entries of %s and of %s (see status -o json) remain: %v",
			sum.Scope, registry.Counted(sum.Unknown-1, "more part", "more parts"), sum.Why))
	case m != nil && m.LastError != "": // new and removed keys are not seen
		g.add(Partial, "service keys are kept from the last read: "+m.LastError)
	}
	return g.all
}

// conditionsOfTarget returns the conditions of a target, the worst first.
func conditionsOfTarget(t Target, st bridge.Status) []Condition {
	g, state := conditionList{direction: OfTarget, name: t.Name}, t.State()
	reachable := g.addReachability(t, state)
	reasons := make(map[bridge.Reason]int)
	for _, b := range st.Bridges {
		for reason, n := range b.Reasons {
			reasons[reason] += n
		}
	}
	if reachable {
		g.addProblems(t, state, st, reasons)
	}
	g.addCounted(Refused, reasons[bridge.ReasonRefused], "service has entries", "services have entries",
		" that the target rejects; see why SERVICE")
	g.addCounted(Unwritable, reasons[bridge.ReasonUnwritable], "service", "services",
		" cannot be written; see why SERVICE")
	g.addCounted(Held, st.Counts.Holds, "hold", "holds", "; see xds-bridge holds")
	if st.Counts.Denied > 0 {
		g.addCounted(Denied, st.Counts.Denied, "unclaimed entry remains", "unclaimed entries remain",
			", because an operator denied the deletion; see xds-bridge holds, and approve the hold to delete them")
		g.all[len(g.all)-1].Since = st.Counts.DeniedSince
	}
	g.addCounted(Conflicting, st.Counts.Conflicts, "desired entry", "desired entries",
		" cannot be written, because another owner or bridge has an entry in the same place; see why SERVICE")
	if !st.Listed {
		return g.all
	}
	for _, b := range st.Bridges {
		if why := idleReason(b); why != "" {
			g.all = append(g.all, Condition{Direction: OfTarget, Registry: t.Name, Name: Idle, Bridge: b.Name, Detail: why})
		}
	}
	if reachable { // else nothing can be written
		g.add(Syncing, pendingWrites(st, reasons[bridge.ReasonPending]))
	}
	return g.all
}

// addProblems adds the conditions of a target that can be written.
func (g *conditionList) addProblems(t Target, state TargetState, st bridge.Status, reasons map[bridge.Reason]int) {
	switch {
	case !st.Listed:
		g.add(Pending, cmp.Or(st.LastError, "the target was not listed yet"))
	case st.LastError != "":
		g.add(Failing, st.LastError)
	case t.Kind != "mesh" && state.LastError != "": // an error of a connected registry
		g.add(Failing, state.LastError)
	case len(state.RefusedRules) > 0:
		g.add(Failing, fmt.Sprintf("data planes do not follow parts of import.rulesFile (%d), such as %s",
			len(state.RefusedRules), state.RefusedRules[0]))
	default:
		g.addCounted(Failing, reasons[bridge.ReasonRetrying], "service", "services", " could not be read or written")
	}
	g.add(Unwatched, state.Unwatched)
	g.add(Unrecorded, cmp.Or(st.Unrecorded, state.Unrecorded))
}

// addReachability adds why a target cannot be written, and reports whether it can be
// written.
func (g *conditionList) addReachability(t Target, state TargetState) bool {
	g.add(OwnerConflict, state.Refused)
	switch {
	case state.Connected:
	case t.Kind == "mesh": // it is served even without a reader
		g.add(NoReader, cmp.Or(state.LastError, noReader))
	default:
		g.add(Unreachable, cmp.Or(state.LastError, "not connected yet"))
		return false
	}
	return state.Refused == ""
}

// pendingWrites returns which writes are due, or an empty text if there are none.
func pendingWrites(st bridge.Status, pending int) string {
	switch {
	case slices.ContainsFunc(st.Bridges, func(b bridge.BridgeStatus) bool { return !b.Synced }):
		return "a bridge waits for the complete state of its source"
	case st.Queue > 0:
		return registry.Counted(st.Queue, "group is due", "groups are due")
	case pending > 0:
		return registry.Counted(pending, "service is being written", "services are being written")
	}
	return ""
}

// idleReason returns why a bridge has no desired entries. It returns an empty text if the
// bridge has some, or does not have the complete state of its source yet.
func idleReason(b bridge.BridgeStatus) string {
	switch {
	case !b.Synced || b.Entries > 0:
		return ""
	case b.Services == 0:
		return "the source has no service in the part that the bridge reads: " +
			"check root, namespace, group and select.include; " +
			"in a mesh, a host without a service key needs a rule in bridges[].names"
	case b.Reasons[bridge.ReasonSkipped] == b.Services:
		return fmt.Sprintf("select excludes every service that the source reports (%d); "+
			"in a mesh, hosts without a service key are not counted: they need a rule in bridges[].names", b.Services)
	case b.Reasons[bridge.ReasonSkipped]+b.Reasons[bridge.ReasonEmpty] == b.Services:
		return fmt.Sprintf("none of %s has anything to write, such as %s; "+
			"in a mesh, a rule in names of this bridge gives a host its service key, or its name in formats with plain names",
			registry.Counted(b.Reasons[bridge.ReasonEmpty], "service", "services"), b.Nothing)
	}
	return ""
}

// conditionsOfProcess returns the conditions of the process itself, the worst first.
func (rep *reporter) conditionsOfProcess(replicas *Replicas) (all []Condition) {
	if rep.opts.Reloaded != nil {
		if r := rep.opts.Reloaded(); r != nil && !r.OK {
			all = append(all, Condition{
				Direction: OfProcess, Name: ReloadRefused,
				Detail: "the configuration was not applied; the previous configuration continues",
			})
		}
	}
	if err := rep.opts.Audit.Err(); err != nil {
		all = append(all, Condition{
			Direction: OfProcess, Name: Unrecorded,
			Detail: "audit.file cannot be written, so decisions are only in the log: " + err.Error(),
		})
	}
	switch {
	case replicas == nil:
	case replicas.LastError != "": // the members are not known either
		all = append(all, Condition{Direction: OfProcess, Name: LeaseUnreachable, Detail: replicas.LastError})
	case len(replicas.Members) > 0 && len(replicas.Members) < replicas.Expected:
		all = append(all, Condition{Direction: OfProcess, Name: MissingReplica, Detail: fmt.Sprintf(
			"%d of %d replicas run: %s; start the others, or set replicas.expected",
			len(replicas.Members), replicas.Expected, strings.Join(replicas.Members, ", "))})
	}
	return all
}

// conditionInterval is how often conditions are checked. A condition that ends before the
// second check has no event.
const conditionInterval = time.Second

// followConditions checks the conditions until ctx ends, and reports those that begin, end
// or last.
func (rep *reporter) followConditions(ctx context.Context) {
	tick := time.NewTicker(conditionInterval)
	defer tick.Stop()
	reported, reminded := make(map[Condition]bool), make(map[Condition]time.Time)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all := rep.Conditions()
			rep.reportChanges(all, reported)
			rep.remind(all, reminded, time.Now())
		}
	}
}

// remindInterval is how often a condition that lasts is reported again.
const remindInterval = 24 * time.Hour

// remind reports each condition that has lasted for remindInterval since its last report.
// Otherwise an operator forgets conditions that a decision caused, such as denied.
func (rep *reporter) remind(all []Condition, reminded map[Condition]time.Time, now time.Time) {
	present := make(map[Condition]bool, len(all))
	for _, c := range all {
		key := c.key()
		present[key] = true
		last, known := reminded[key]
		switch {
		case !known:
			reminded[key] = now
		case now.Sub(last) >= remindInterval:
			reminded[key] = now
			rep.opts.Log.Warn("condition continues", "condition", c.Name, "subject", c.subject(), "since", c.Since,
				"reason", c.Detail)
			rep.opts.Events.Add(c.event("still "+string(c.Name), c.Detail, c.Since))
		}
	}
	maps.DeleteFunc(reminded, func(c Condition, _ time.Time) bool { return !present[c] })
}

// reportChanges records when the present conditions began. With an event and a log line, it
// reports each condition that the previous check also found, and each reported condition
// that ended.
func (rep *reporter) reportChanges(all []Condition, reported map[Condition]bool) {
	present := make(map[Condition]bool, len(all))
	rep.mu.Lock()
	before := rep.since
	rep.since = make(map[Condition]time.Time, len(all))
	for _, c := range all {
		rep.since[c.key()] = c.Since
		present[c.key()] = true
	}
	rep.mu.Unlock()
	for _, c := range all {
		if _, lasts := before[c.key()]; !lasts || reported[c.key()] {
			continue
		}
		reported[c.key()] = true
		if c.needsEvent() {
			rep.opts.Events.Add(c.event(string(c.Name), c.Detail, time.Time{}))
		}
		if c.needsLog() {
			rep.logger(c).Warn("condition began", "reason", c.Detail)
		}
	}
	for c := range reported {
		if present[c] {
			continue
		}
		delete(reported, c)
		if c.needsEvent() {
			rep.opts.Events.Add(c.event("no longer "+string(c.Name), "", before[c]))
		}
		if c.needsLog() {
			rep.logger(c).Warn("condition ended", "lasted", time.Since(before[c]).Round(time.Second))
		}
	}
}

// logger returns a log whose lines name a condition.
func (rep *reporter) logger(c Condition) *slog.Logger {
	log := rep.opts.Log.With("condition", c.Name, "subject", c.subject())
	if c.Bridge != "" {
		log = log.With("bridge", c.Bridge)
	}
	return log
}

func (c Condition) event(what, why string, since time.Time) bridge.Event {
	return bridge.Event{
		Time: time.Now(), Kind: bridge.EventCondition, Target: c.Registry, Bridge: c.Bridge, Subject: c.subject(),
		What: what, Why: why, Since: since,
	}
}
