package bridge

import (
	"fmt"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// drains are the places from which providers that registered themselves took themselves
// off while they were claimed: whoever drains a provider does so in the registry, and the
// source still has it. Nothing is added there until the source left the place out once.
type drains struct {
	state *sharedState

	groups map[registry.Group]map[string]bool // places, see plan.Place
}

// A drainRecord is a record of drains.
type drainRecord struct {
	Group  registry.Group `json:"group"`
	Places []string       `json:"places"`
}

// isDrained reports whether nothing may be added under a key.
func (d *drains) isDrained(group registry.Group, key string) bool {
	return d.groups[group][plan.Place(key)]
}

// observe records what a reading of a group shows. Providers register themselves where
// entries end with the session that wrote them.
func (d *drains) observe(group registry.Group, list []registry.Stored) {
	if !d.state.target.Sessions || !d.state.acts() {
		return
	}
	changed := false
	for _, place := range d.state.planner.Left(group, list) {
		changed = d.setDrained(group, place, true) || changed
	}
	if len(d.groups[group]) > 0 {
		for _, h := range list {
			if h.Owner == "" {
				changed = d.setDrained(group, plan.Place(h.Key), false) || changed
			}
		}
	}
	if changed {
		d.storeRecord(group)
	}
}

// forgetUnclaimed drops the places that nobody claims any more, once each source reported
// everything: what a source cannot report may still be there. A standby leaves that to
// the leader, whose record it would overwrite.
func (d *drains) forgetUnclaimed() {
	ignorant := func(p *pipeline) bool { return !p.complete() || len(p.certainty.Unknown) > 0 }
	if len(d.groups) == 0 || !d.state.acts() || !d.state.records.guardsRead || slices.ContainsFunc(d.state.pipelines, ignorant) {
		return
	}
	for group, places := range d.groups {
		changed := false
		for place := range places {
			if !d.state.planner.Claims(group, place) {
				changed = d.setDrained(group, place, false) || changed
			}
		}
		if changed {
			d.storeRecord(group)
		}
	}
}

// setDrained reports whether that changed it.
func (d *drains) setDrained(group registry.Group, place string, drained bool) bool { //nolint:revive // of the place, not a mode
	places := d.groups[group]
	switch {
	case places[place] == drained:
		return false
	case !drained:
		delete(places, place)
	case places == nil:
		d.groups[group] = map[string]bool{place: true}
	default:
		places[place] = true
	}
	if len(places) == 0 && !drained {
		delete(d.groups, group)
	}
	return true
}

func drainRecordName(group registry.Group) string { return fmt.Sprintf("%02x", hashOf(group)%buckets) }

// storeRecord has the record with a group be written.
func (d *drains) storeRecord(group registry.Group) {
	name := drainRecordName(group)
	var all []drainRecord
	for g, places := range d.groups {
		if drainRecordName(g) == name {
			all = append(all, drainRecord{g, slices.Sorted(maps.Keys(places))})
		}
	}
	if len(all) == 0 {
		d.state.records.store(recordDrained, name, nil)
		return
	}
	slices.SortFunc(all, func(a, b drainRecord) int { return a.Group.Compare(b.Group) })
	d.state.records.store(recordDrained, name, all)
}

// loadRecords adds what an earlier process recorded.
func (d *drains) loadRecords(records map[string][]drainRecord) {
	for _, list := range records {
		for _, r := range list {
			for _, place := range r.Places {
				d.setDrained(r.Group, place, true)
			}
		}
	}
}

// conflictRelease returns what ends a conflict. What a provider registered itself, the bridge
// takes over no sooner than the source left it out.
func (d *drains) conflictRelease(c *plan.Conflict) string {
	switch {
	case c.Drained:
		return "once the source has omitted it"
	case c.Owner == "" && !c.RivalClaim && d.state.target.Sessions:
		return "once the other entry is deleted and the source has omitted the address"
	}
	return "when the other entry is deleted, or adopt takes it over"
}

// awaitRecords leaves out for recordsAwaited what would be added before it is known from
// where providers took themselves off. Records that cannot be read keep nobody waiting for
// longer.
func (d *draft) awaitRecords(change registry.Change) registry.Change {
	until := d.state.records.awaitRead(d.now)
	if d.state.records.drainedRead || !d.now.Before(until) {
		return change
	}
	d.item.wakeAt = soonest(d.item.wakeAt, until)
	return change.KeepPuts(func(w registry.Write) bool {
		if !w.Adds() || !registry.IsEndpoint(w.New.Key) {
			return true
		}
		d.item.addOmission(omission{origin: d.state.planner.Winner(d.item.group, w.New.Key), reason: ReasonPending, detail: "the records of this owner are being read"})
		return false
	})
}
