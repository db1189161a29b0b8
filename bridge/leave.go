package bridge

import (
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// handover is how long our last endpoints of a group are kept after they were marked as
// leaving. In this time another owner can see the mark and store its own entries. Once it
// has, ours are deleted at once.
const handover = 3 * time.Second

// markLeaving replaces the deletion of our last endpoints of a group by a mark, and allows
// the deletion after the handover. Without it another owner that waits for these keys would
// store its entries only after the deletion. Consumers that find a group empty, if only for
// milliseconds, fail calls for seconds.
func (d *draft) markLeaving(change registry.Change) registry.Change {
	it := d.item
	if d.state.target.Leave == nil || countEndpoints(change.Delete) == 0 || hasEndpoint(change.Want) {
		it.leavingSince = time.Time{}
		return change
	}
	puts, waits := d.leavingMarks(change)
	if len(puts) > 0 || it.leavingSince.IsZero() { // if zero, an earlier process marked them
		it.leavingSince = d.now
	}
	at := it.leavingSince.Add(handover)
	if !waits || !d.now.Before(at) {
		return change
	}
	it.wakeAt = soonest(it.wakeAt, at)
	change = change.Keep(func(h registry.Stored) bool {
		n := omission{
			reason: ReasonWaiting, detail: "marked as leaving, so that another owner can store its entries first",
		}
		if o := it.orphans[h.Key]; o != nil {
			n.origin = o.Origin
		}
		it.addOmission(n)
		return false
	})
	return withPuts(change, puts)
}

// leavingMarks returns the writes that mark endpoints as leaving, and whether another owner
// may still wait for any of them. The bridge does not wait for an endpoint that the target
// refuses to mark.
func (d *draft) leavingMarks(change registry.Change) (puts []registry.Write, waits bool) {
	marked := make(map[string]bool)
	for _, h := range change.Delete {
		marked[h.Key] = marked[h.Key] || d.state.target.Leave(h.Entry) == h.Entry
	}
	for _, h := range change.Delete {
		if !registry.IsEndpoint(h.Key) || !h.Live || d.state.planner.Taken(change.Group, h.Key) {
			continue
		}
		leaving := d.state.target.Leave(h.Entry)
		if refused, tried := d.item.refusals[h.Key]; tried && refused.value == leaving.Value {
			continue
		}
		if waits = true; !marked[h.Key] {
			puts, marked[h.Key] = append(puts, registry.Write{New: leaving, Old: &h}), true
		}
	}
	return puts, waits
}

// withPuts returns a change with further writes, which replace entries of Want.
func withPuts(change registry.Change, puts []registry.Write) registry.Change {
	for _, w := range puts {
		change.Put = append(slices.Clip(change.Put), w)
		isOld := func(e registry.Entry) bool { return e == w.Old.Entry }
		change.Want = append(slices.DeleteFunc(slices.Clone(change.Want), isOld), w.New)
	}
	slices.SortStableFunc(change.Put, func(a, b registry.Write) int { return strings.Compare(a.New.Key, b.New.Key) })
	change.Want = registry.Sorted(change.Want)
	return change
}
