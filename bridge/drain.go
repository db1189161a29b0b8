package bridge

import (
	"fmt"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// drains are the places where a provider registered itself, and then deregistered while its
// address was claimed. An operator who drains a provider in the registry does not change the
// source, which still reports it. Nothing is added at such a place until the source has
// omitted it once, or the provider registers itself again.
type drains struct {
	state *sharedState

	groups map[registry.Group]map[string]bool // drained places, see plan.Place
}

// A drainRecord has the drained places of one group, as they are recorded in the target.
type drainRecord struct {
	Group  registry.Group `json:"group"`
	Places []string       `json:"places"`
}

// isDrained reports whether the place of a key is drained.
func (d *drains) isDrained(group registry.Group, key string) bool {
	return d.groups[group][plan.Place(key)]
}

// observe records the places that a read of a group shows as drained, or as registered
// again. Only targets with sessions have providers that register themselves.
func (d *drains) observe(group registry.Group, list []registry.Stored) {
	if !d.state.target.Sessions || !d.state.acts() {
		return
	}
	changed := false
	for _, place := range d.state.planner.SelfDeregistered(group, list) {
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

// forgetUnclaimed forgets the drained places that are no longer claimed, once every source
// has reported everything: what a source cannot report may still be there. A standby
// forgets nothing, because it would overwrite the record of its leader.
func (d *drains) forgetUnclaimed() {
	if len(d.groups) == 0 || !d.state.acts() || !d.state.records.guardsRead {
		return
	}
	isIncomplete := func(p *pipeline) bool { return !p.complete() || len(p.certainty.Unknown) > 0 }
	if slices.ContainsFunc(d.state.pipelines, isIncomplete) {
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

// setDrained records whether a place is drained. It reports whether that changed.
func (d *drains) setDrained(group registry.Group, place string, drained bool) bool { //nolint:revive // a fact
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

// drainRecordName returns the name of the record that has the drained places of a group.
func drainRecordName(group registry.Group) string { return fmt.Sprintf("%02x", hashOf(group)%buckets) }

// storeRecord stores the record that has the drained places of a group.
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

// loadRecords adds the places that an earlier process recorded.
func (d *drains) loadRecords(records map[string][]drainRecord) {
	for _, list := range records {
		for _, r := range list {
			for _, place := range r.Places {
				d.setDrained(r.Group, place, true)
			}
		}
	}
}

// conflictRelease returns what ends a conflict. The bridge takes over the address of a
// provider that registered itself only after the source has omitted it.
func (d *drains) conflictRelease(c *plan.Conflict) string {
	switch {
	case c.Drained:
		return "once the source has omitted it"
	case c.Owner == "" && !c.RivalClaim && d.state.target.Sessions:
		return "once the other entry is deleted and the source has omitted the address"
	}
	return "when the other entry is deleted, or adopt takes it over"
}

// awaitRecords removes the endpoints that a change would add, until the records of drained
// places are read. It waits for recordsAwaited at most.
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
		d.item.addOmission(omission{
			origin: d.state.planner.Winner(d.item.group, w.New.Key), reason: ReasonPending,
			detail: "the records of this owner are being read",
		})
		return false
	})
}
