package bridge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// refusals are the parts of a group's change that its target refuses. They
// wait by themselves, so that what the group needs beside them is written when
// it is due. A target may refuse a part and write the rest, or refuse all for
// one part, and need not say which it was: what is still needed after a
// refusal is tried again apart from everything else, a little at a time.
type refusals struct {
	of    map[operation]string // what is written, by what is done
	why   error
	tried map[operation]string // in a write that was refused, until it is known what became of it
	last  operation            // that was tried last
	batch int                  // how many are tried at a time
	at    time.Time            // when some are tried again; zero: there are none
}

// An operation is one part of a change.
type operation struct {
	key     string
	deletes bool
}

func (o operation) compare(p operation) int {
	if o.deletes != p.deletes {
		if p.deletes {
			return -1
		}
		return +1
	}
	return strings.Compare(o.key, p.key)
}

func operations(c registry.Change) map[operation]string {
	all := make(map[operation]string, len(c.Put)+len(c.Delete))
	for _, w := range c.Put {
		all[operation{w.New.Key, false}] = w.New.Value
	}
	for _, h := range c.Delete {
		all[operation{h.Key, true}] = h.Value
	}
	return all
}

// accepted takes in that a change was written. Where that was refused before,
// the rest may be accepted by now, too.
func (r *refusals) accepted(c registry.Change, now time.Time) {
	before := len(r.of)
	for op, value := range operations(c) {
		if was, refused := r.of[op]; refused && was == value {
			delete(r.of, op)
		}
	}
	if len(r.of) < before {
		r.batch, r.at = 2*r.batch, now
	}
}

// refused takes in which parts of a refused write are still needed, and
// reports whether any was not refused before.
func (r *refusals) refused(needed map[operation]string, wait time.Duration, now time.Time) (isNew bool) {
	left := 0
	for op, value := range r.tried {
		if is, still := needed[op]; !still || is != value {
			continue
		}
		left++
		if was, known := r.of[op]; !known || was != value {
			isNew = true
		}
		if r.of == nil {
			r.of = make(map[operation]string)
		}
		r.of[op] = value
		if left == 1 || op.compare(r.last) > 0 {
			r.last = op
		}
	}
	r.batch, r.at = 1, now.Add(wait)
	if left > 1 && left == len(r.tried) { // perhaps for the sake of one
		r.at, r.last = now, operation{}
	}
	r.tried = nil
	return isNew
}

// due returns those that are to be tried now.
func (r *refusals) due(now time.Time) map[operation]bool {
	if now.Before(r.at) {
		return nil
	}
	all := slices.SortedFunc(maps.Keys(r.of), operation.compare)
	after, _ := slices.BinarySearchFunc(all, r.last, operation.compare)
	if after < len(all) && all[after] == r.last {
		after++
	}
	next := make(map[operation]bool, r.batch)
	for i := range min(r.batch, len(all)) {
		next[all[(after+i)%len(all)]] = true
	}
	return next
}

// withhold leaves out of a change what the target refuses, unless there is
// nothing else to write and it is time to try some of it again.
func (l *loop) withhold(it *item, change registry.Change, now time.Time) registry.Change {
	r := &it.refusals
	if r.tried == nil && r.of == nil {
		return change
	}
	needed := operations(change)
	if r.tried != nil && r.refused(needed, l.opts.Retry.Max, now) {
		l.refusal(it)
	}
	maps.DeleteFunc(r.of, func(op operation, value string) bool { is, still := needed[op]; return !still || is != value })
	if len(r.of) == 0 {
		it.refusals = refusals{}
		return change
	}
	for op := range r.of {
		l.noteRefusal(it, op)
	}
	var next map[operation]bool
	if len(needed) == len(r.of) {
		next = r.due(now)
	}
	wait := func(op operation) bool { _, refused := r.of[op]; return refused && !next[op] }
	change = withoutPuts(change, func(w registry.Write) bool { return wait(operation{w.New.Key, false}) })
	return change.Keep(func(h registry.Held) bool { return !wait(operation{h.Key, true}) })
}

// refusal tells of a refusal that is new.
func (l *loop) refusal(it *item) {
	r := it.refusals
	what := fmt.Sprintf("%d of its entries refused", len(r.of))
	l.tell(Event{
		Kind: EventRefused, Subject: it.group.String(), What: what, Why: r.why.Error(),
		Release: "each is tried again every " + l.opts.Retry.Max.String(),
	})
	l.opts.Log.Warn("target refused entries", "target", l.opts.Target, "group", it.group.String(), "entries", len(r.of), "err", r.why)
}

// noteRefusal notes for whom something is refused.
func (l *loop) noteRefusal(it *item, op operation) {
	n := note{reason: ReasonRefused, detail: it.refusals.why.Error()}
	if n.origin, n.known = l.planner.Winner(it.group, op.key); !n.known {
		if s := it.surplus[op.key]; s != nil {
			n.origin, n.known = s.Origin, s.Known
		}
	}
	it.note(n)
}

// withoutPuts leaves writes out of a change; what they would replace stays.
func withoutPuts(change registry.Change, leave func(registry.Write) bool) registry.Change {
	left := make(map[string]*registry.Held) // what stays, by key
	change.Put = slices.DeleteFunc(change.Put, func(w registry.Write) bool {
		if !leave(w) {
			return false
		}
		left[w.New.Key] = w.Old
		return true
	})
	if len(left) == 0 {
		return change
	}
	var want []registry.Entry
	for _, e := range change.Want {
		old, stays := left[e.Key]
		switch {
		case !stays:
			want = append(want, e)
		case old != nil:
			want = append(want, old.Entry)
		}
	}
	change.Want = want
	return change
}
