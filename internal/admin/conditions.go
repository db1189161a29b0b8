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

// Condition is something that keeps the bridge from being in sync, or that a
// person should look at. The first line of status and its exit code, the column
// STATE, the JSON, the events and the metric xdsbridge_condition are all made
// from one list of them, so that none says that all is well while another does
// not.
type Condition struct {
	Direction Direction     `json:"direction"`
	Registry  string        `json:"registry,omitempty"` // the source or the target by its name; empty for the process
	Name      ConditionName `json:"condition"`
	Bridge    string        `json:"bridge,omitempty"` // if it is about one alone
	Detail    string        `json:"detail,omitempty"`
	Since     time.Time     `json:"since"`
	Until     time.Time     `json:"until,omitzero"` // when it ends by itself, or with the reading after that; it keeps nothing from being in sync then
}

// Direction says what a condition is about.
type Direction string

// What conditions are about.
const (
	OfSource  Direction = "source"
	OfTarget  Direction = "target"
	OfProcess Direction = "process"
)

// ConditionName distinguishes conditions.
type ConditionName string

// The conditions, the worst first.
const (
	OwnerConflict    ConditionName = "owner-conflict"    // another bridge of this owner writes there, or the owner was changed
	Unreachable      ConditionName = "unreachable"       // no connection to a target
	NoReader         ConditionName = "no-reader"         // nobody reads what is served
	Pending          ConditionName = "pending"           // not read as a whole yet
	Stale            ConditionName = "stale"             // what a source reported may be out of date
	ReloadRefused    ConditionName = "reload-refused"    // the configuration that was read last was refused
	LeaseUnreachable ConditionName = "lease-unreachable" // the record of the replicas is out of reach
	MissesReplica    ConditionName = "replica-missing"   // fewer replicas run than are expected
	Failing          ConditionName = "failing"           // calls to a target fail and are repeated, or something else is wrong with it
	Unwatched        ConditionName = "unwatched"         // what others change in a target may be missed until it is read again
	Unrecorded       ConditionName = "unrecorded"        // what has to outlive the process is not stored
	Refused          ConditionName = "refused"           // a target refuses entries
	Unwritable       ConditionName = "unwritable"        // services that cannot be written
	Held             ConditionName = "held"              // a guard holds deletions back
	Denied           ConditionName = "denied"            // entries stay that no source reports, because a person denied that they are deleted
	Partial          ConditionName = "partial"           // a source cannot report a part
	Conflicting      ConditionName = "conflict"          // entries of others are where claims would be
	Idle             ConditionName = "idle"              // a bridge claims nothing
	Syncing          ConditionName = "syncing"           // writes are due
)

// ConditionsOf returns those that there may be of a direction, the worst first.
func ConditionsOf(d Direction) []ConditionName {
	switch d {
	case OfSource:
		return []ConditionName{Pending, Stale, Partial}
	case OfTarget:
		return []ConditionName{OwnerConflict, Unreachable, NoReader, Pending, Failing, Unwatched, Unrecorded, Refused, Unwritable, Held, Denied, Conflicting, Idle, Syncing}
	default:
		return []ConditionName{ReloadRefused, LeaseUnreachable, MissesReplica, Unrecorded}
	}
}

// needsEvent reports whether no other event shows that a condition begins and ends.
func (c Condition) needsEvent() bool {
	return !slices.Contains([]ConditionName{ReloadRefused, Held, Conflicting, Unwritable, Syncing}, c.Name)
}

// needsLog reports whether no other log lines show that a condition begins and
// ends. Writes are due all the time.
func (c Condition) needsLog() bool {
	return !slices.Contains([]ConditionName{ReloadRefused, Held, Syncing}, c.Name)
}

// Lasts reports whether a condition does not end by itself.
func (c Condition) Lasts() bool { return c.Until.IsZero() }

// key identifies a condition, without its detail.
func (c Condition) key() Condition {
	return Condition{Direction: c.Direction, Registry: c.Registry, Name: c.Name, Bridge: c.Bridge}
}

func (c Condition) subject() string {
	return strings.TrimSpace(string(c.Direction) + " " + c.Registry)
}

// Conditions returns what holds now, the worst first of each source, of each
// target and of the process. It waits for no loop.
func (rep *reporter) Conditions() []Condition { return rep.Overview().Conditions }

// conditions returns them by what loops reported, which may be their summaries.
func (rep *reporter) conditions(loops []bridge.Status, replicas *Replicas) []Condition {
	all := []Condition{}
	for _, in := range rep.current().inputs {
		all = append(all, conditionsOfSource(in)...)
	}
	for i, t := range rep.current().targets {
		if i < len(loops) && loops[i].Target == t.Name { // a reload may have come in between
			all = append(all, conditionsOfTarget(t, loops[i])...)
		}
	}
	all = append(all, rep.conditionsOfProcess(replicas)...)
	now := time.Now()
	rep.mu.Lock()
	defer rep.mu.Unlock()
	for i, c := range all {
		if !c.Since.IsZero() { // what it is of remembers that
			continue
		}
		all[i].Since = now
		if since, known := rep.since[c.key()]; known {
			all[i].Since = since
		}
	}
	return all
}

// conditionList are the conditions of one source or target.
type conditionList struct {
	direction Direction
	name      string
	all       []Condition
}

// add adds a condition with what is to be said of it; nothing: it does not hold.
func (g *conditionList) add(name ConditionName, detail string) {
	if detail != "" {
		g.all = append(g.all, Condition{Direction: g.direction, Registry: g.name, Name: name, Detail: detail})
	}
}

// count adds a condition of so many, which begins the detail; none: it does not hold.
func (g *conditionList) addCounted(name ConditionName, n int, one, many, rest string) {
	if n > 0 {
		g.add(name, registry.Counted(n, one, many)+rest)
	}
}

func conditionsOfSource(in Input) []Condition {
	sum, state := in.Table.Summary(), in.State()
	g := conditionList{direction: OfSource, name: in.Name}
	if !sum.Synced {
		g.add(Pending, cmp.Or(state.LastError, "it has not reported everything yet"))
	}
	if sum.Stale != nil {
		g.add(Stale, sum.Stale.Error())
	}
	switch m := state.Mapping; {
	case sum.Unknown == 1 && m != nil && !m.Until.IsZero(): // the service keys
		g.add(Partial, sum.Scope+": "+sum.Why.Error())
		if m.LastError == "" { // else no reading ends it
			g.all[len(g.all)-1].Until = m.Until
		}
	case sum.Unknown == 1:
		g.add(Partial, fmt.Sprintf("the entries of %s stay: %v", sum.Scope, sum.Why))
	case sum.Unknown > 1:
		g.add(Partial, fmt.Sprintf("the entries of %s, and of %s that status -o json shows, stay: %v", sum.Scope, registry.Counted(sum.Unknown-1, "more part", "more parts"), sum.Why))
	case m != nil && m.LastError != "": // keys that are new or go are not seen
		g.add(Partial, "service keys are kept as read last: "+m.LastError)
	}
	return g.all
}

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
	g.addCounted(Refused, reasons[bridge.ReasonRefused], "service has entries", "services have entries", " that it refuses; see why SERVICE")
	g.addCounted(Unwritable, reasons[bridge.ReasonUnwritable], "service", "services", " cannot be written; see why SERVICE")
	g.addCounted(Held, st.Counts.Holds, "hold", "holds", "; see xds-bridge holds")
	if st.Counts.Denied > 0 {
		g.addCounted(Denied, st.Counts.Denied, "entry that no source reports stays", "entries that no source reports stay",
			", because a person denied the deletion; see xds-bridge holds, and approve lets them go")
		g.all[len(g.all)-1].Since = st.Counts.DeniedSince
	}
	g.addCounted(Conflicting, st.Counts.Conflicts, "entry of others, or of another bridge, is", "entries of others, or of other bridges, are", " where claims would be; see why SERVICE")
	if !st.Listed {
		return g.all
	}
	for _, b := range st.Bridges {
		if why := idleReason(b); why != "" {
			g.all = append(g.all, Condition{Direction: OfTarget, Registry: t.Name, Name: Idle, Bridge: b.Name, Detail: why})
		}
	}
	if reachable { // else nothing is being written
		g.add(Syncing, pendingWrites(st, reasons[bridge.ReasonPending]))
	}
	return g.all
}

// reached adds what is wrong with a target that can be written to.
func (g *conditionList) addProblems(t Target, state TargetState, st bridge.Status, reasons map[bridge.Reason]int) {
	switch {
	case !st.Listed:
		g.add(Pending, cmp.Or(st.LastError, "it was not listed yet"))
	case st.LastError != "":
		g.add(Failing, st.LastError)
	case t.Kind != "mesh" && state.LastError != "": // though it is connected
		g.add(Failing, state.LastError)
	case len(state.RefusedRules) > 0:
		g.add(Failing, registry.Counted(len(state.RefusedRules), "reason", "reasons")+" why rules of import.rulesFile are not followed; the first is "+state.RefusedRules[0])
	default:
		g.addCounted(Failing, reasons[bridge.ReasonRetrying], "service", "services", " could not be read or written")
	}
	g.add(Unwatched, state.Unwatched)
	g.add(Unrecorded, cmp.Or(st.Unrecorded, state.Unrecorded))
}

// reach adds why a target cannot be written to, and reports whether it can.
func (g *conditionList) addReachability(t Target, state TargetState) bool {
	g.add(OwnerConflict, state.Refused)
	switch {
	case state.Connected:
	case t.Kind == "mesh": // it serves, whoever reads it
		g.add(NoReader, cmp.Or(state.LastError, "configSources of an istiod has to name this address"))
	default:
		g.add(Unreachable, cmp.Or(state.LastError, "not connected yet"))
		return false
	}
	return state.Refused == ""
}

// due says what is left to be written; empty: nothing.
func pendingWrites(st bridge.Status, pending int) string {
	switch {
	case slices.ContainsFunc(st.Bridges, func(b bridge.BridgeStatus) bool { return !b.Synced }):
		return "a bridge waits until its source has reported everything"
	case st.Queue > 0:
		return registry.Counted(st.Queue, "group is due", "groups are due")
	case pending > 0:
		return registry.Counted(pending, "service is being written", "services are being written")
	}
	return ""
}

// idle says why a bridge claims nothing; empty if it claims something or has
// not looked yet.
func idleReason(b bridge.BridgeStatus) string {
	switch {
	case !b.Synced || b.Entries > 0:
		return ""
	case b.Services == 0:
		return "its source has no service that it reads: check root, namespace, group and select.include; of a mesh, hosts without a service key need a rule in bridges[].names"
	case b.Reasons[bridge.ReasonSkipped] == b.Services:
		return fmt.Sprintf("its select leaves out every service that its source reports (%d); hosts of a mesh without a service key are not among them, and need a rule in bridges[].names", b.Services)
	case b.Reasons[bridge.ReasonSkipped]+b.Reasons[bridge.ReasonEmpty] == b.Services:
		return fmt.Sprintf("none of %s has anything to write, such as %s; of a mesh, a rule in names of this bridge gives a host its service key, or its name in formats with plain names",
			registry.Counted(b.Reasons[bridge.ReasonEmpty], "service", "services"), b.Nothing)
	}
	return ""
}

func (rep *reporter) conditionsOfProcess(replicas *Replicas) (all []Condition) {
	if rep.opts.Reloaded != nil {
		if r := rep.opts.Reloaded(); r != nil && !r.OK {
			all = append(all, Condition{Direction: OfProcess, Name: ReloadRefused, Detail: "the configuration was not applied, and the one before continues"})
		}
	}
	if err := rep.opts.Audit.Err(); err != nil {
		all = append(all, Condition{Direction: OfProcess, Name: Unrecorded, Detail: "audit.file is not written, and decisions are in the log alone: " + err.Error()})
	}
	switch {
	case replicas == nil:
	case replicas.LastError != "": // and who else runs is not known
		all = append(all, Condition{Direction: OfProcess, Name: LeaseUnreachable, Detail: replicas.LastError})
	case len(replicas.Members) > 0 && len(replicas.Members) < replicas.Expected:
		all = append(all, Condition{Direction: OfProcess, Name: MissesReplica, Detail: fmt.Sprintf(
			"%d of %d replicas run: %s; start the others, or set replicas.expected", len(replicas.Members), replicas.Expected, strings.Join(replicas.Members, ", "))})
	}
	return all
}

// conditionInterval is how often conditions are checked. One that lasts for less than two
// checks has no event.
const conditionInterval = time.Second

func (rep *reporter) followConditions(ctx context.Context) {
	tick := time.NewTicker(conditionInterval)
	defer tick.Stop()
	emitted, reminded := make(map[Condition]bool), make(map[Condition]time.Time)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all := rep.Conditions()
			rep.reportChanges(all, emitted)
			rep.remind(all, reminded, time.Now())
		}
	}
}

// remindInterval is how often a condition that lasts is reported once more.
const remindInterval = 24 * time.Hour

// remind reports conditions that have lasted since they were reported last: one that a
// person chose, as by a denial, is forgotten otherwise.
func (rep *reporter) remind(all []Condition, reminded map[Condition]time.Time, now time.Time) {
	holds := make(map[Condition]bool, len(all))
	for _, c := range all {
		key := c.key()
		holds[key] = true
		last, known := reminded[key]
		switch {
		case !known:
			reminded[key] = now
		case now.Sub(last) >= remindInterval:
			reminded[key] = now
			rep.opts.Log.Warn("condition continues", "condition", c.Name, "subject", c.subject(), "since", c.Since, "reason", c.Detail)
			rep.opts.Events.Add(c.event("still "+string(c.Name), c.Detail, c.Since))
		}
	}
	maps.DeleteFunc(reminded, func(c Condition, _ time.Time) bool { return !holds[c] })
}

// emit records since when conditions hold, and reports those that held at the check
// before too, and those that ended: as an event and in the log.
func (rep *reporter) reportChanges(all []Condition, emitted map[Condition]bool) {
	holds := make(map[Condition]bool, len(all))
	rep.mu.Lock()
	before := rep.since
	rep.since = make(map[Condition]time.Time, len(all))
	for _, c := range all {
		rep.since[c.key()] = c.Since
		holds[c.key()] = true
	}
	rep.mu.Unlock()
	for _, c := range all {
		if _, lasts := before[c.key()]; !lasts || emitted[c.key()] {
			continue
		}
		emitted[c.key()] = true
		if c.needsEvent() {
			rep.opts.Events.Add(c.event(string(c.Name), c.Detail, time.Time{}))
		}
		if c.needsLog() {
			rep.logger(c).Warn("condition began", "reason", c.Detail)
		}
	}
	for c := range emitted {
		if holds[c] {
			continue
		}
		delete(emitted, c)
		if c.needsEvent() {
			rep.opts.Events.Add(c.event("no longer "+string(c.Name), "", before[c]))
		}
		if c.needsLog() {
			rep.logger(c).Warn("condition ended", "lasted", time.Since(before[c]).Round(time.Second))
		}
	}
}

// logger returns a log whose lines are about a condition.
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
