package bridge

import (
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// beside has what a change replaces stay where consumers need both for a while.
func (d *draft) beside(change registry.Change) registry.Change {
	if d.target.overlap(change.Group) == 0 {
		return change
	}
	change.Put, change.Want = slices.Clone(change.Put), slices.Clone(change.Want)
	for i, w := range change.Put {
		if w.Old != nil && w.Old.Live && w.Old.Value != w.New.Value {
			change.Put[i].Beside = true
			change.Want = append(change.Want, w.Old.Entry)
		}
	}
	change.Want = registry.Sorted(slices.Values(change.Want))
	return change
}

// replaces reports whether a deletion is the end of a replacement: of the entry
// beside which stands what replaced it. It is a part of the update.
func (d *draft) replaces(change registry.Change, h registry.Held) bool {
	if d.target.overlap(change.Group) == 0 || !slices.ContainsFunc(change.Want, func(e registry.Entry) bool { return e.Key == h.Key }) {
		return false
	}
	origin, ok := d.planner.Winner(change.Group, h.Key)
	return ok && (d.pipelines[origin.Bridge].Policy == PolicySync || d.pipelines[origin.Bridge].Policy == PolicyUpsertOnly)
}

// mayReplace reports whether an entry that was replaced has been beside what
// replaced it for long enough. Of one that another process left it is not known
// since when it is there: it counts from when it is first seen.
func (d *draft) mayReplace(h registry.Held) bool {
	if _, known := d.item.left[h.Entry]; !known {
		d.item.leave(h.Entry, d.now)
	}
	at := d.item.left[h.Entry].Add(d.target.overlap(d.item.group))
	if d.now.Before(at) {
		d.item.wakeAt = soonest(d.item.wakeAt, at)
		return false
	}
	return true
}
