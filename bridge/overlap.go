package bridge

import (
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// overlap returns how long what is replaced in a group stays beside what
// replaces it.
func (l *loop) overlap(group registry.Group) time.Duration {
	if t, ok := l.target.(registry.Overlapping); ok && !l.dry {
		return t.Overlap(group)
	}
	return 0
}

// beside has what a change replaces stay where consumers need both for a while.
func (l *loop) beside(change registry.Change) registry.Change {
	if l.overlap(change.Group) == 0 {
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

// replaced notes which entries were left beside what replaced them, and has the
// group looked at when the first of them may go.
func (it *item) replaced(change registry.Change, overlap time.Duration, now time.Time) {
	for _, w := range change.Put {
		if w.Beside {
			it.leave(w.Old.Entry, now)
			it.wakeAt = soonest(it.wakeAt, now.Add(overlap))
		}
	}
	for _, h := range change.Delete {
		delete(it.left, h.Entry)
	}
}

func (it *item) leave(e registry.Entry, now time.Time) {
	if it.left == nil {
		it.left = make(map[registry.Entry]time.Time)
	}
	it.left[e] = now
}

// replaces reports whether a deletion is the end of a replacement: of the entry
// beside which stands what replaced it. It is a part of the update.
func (l *loop) replaces(change registry.Change, h registry.Held) bool {
	if l.overlap(change.Group) == 0 || !slices.ContainsFunc(change.Want, func(e registry.Entry) bool { return e.Key == h.Key }) {
		return false
	}
	origin, ok := l.planner.Winner(change.Group, h.Key)
	return ok && (l.ways[origin.Bridge].Policy == PolicySync || l.ways[origin.Bridge].Policy == PolicyUpsertOnly)
}

// mayReplace reports whether an entry that was replaced has stood beside what
// replaced it for long enough. Of one that another process left it is not known
// since when it stands there: it counts from when it is first seen.
func (l *loop) mayReplace(it *item, h registry.Held, now time.Time) bool {
	if _, known := it.left[h.Entry]; !known {
		it.leave(h.Entry, now)
	}
	at := it.left[h.Entry].Add(l.overlap(it.group))
	if now.Before(at) {
		it.wakeAt = soonest(it.wakeAt, at)
		return false
	}
	return true
}
