package bridge

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A refusal is what a target refuses under a key. It waits by itself, so that
// what the group needs beside it is written when it is due.
type refusal struct {
	value string // that was to be stored or deleted
	why   error
}

// values returns what a change stores or deletes, by key.
func values(c registry.Change) map[string]string {
	all := make(map[string]string, len(c.Put)+len(c.Delete))
	for _, h := range c.Delete {
		all[h.Key] = h.Value
	}
	for _, w := range c.Put {
		all[w.New.Key] = w.New.Value
	}
	return all
}

// wasRefused takes in which keys of a change the target refused; the others
// were written. Where it names none all are refused, and the group is read,
// because some may have been written.
func (l *loop) wasRefused(o outcome, now time.Time) {
	it, tried := o.item, values(o.change)
	var refused registry.Refused
	if !errors.As(o.err, &refused) {
		refused = make(registry.Refused, len(tried))
		for key := range tried {
			refused[key] = o.err
		}
		it.readAt = time.Time{}
	}
	isNew := false
	if it.refusals == nil {
		it.refusals = make(map[string]refusal, len(refused))
	}
	for key, why := range refused {
		before, known := it.refusals[key]
		isNew = isNew || !known || before.value != tried[key]
		it.refusals[key] = refusal{tried[key], why}
	}
	if !now.Before(it.refusedAt) {
		it.refusedAt = now.Add(l.opts.Retry.Max)
	}
	if isNew {
		l.reportRefusals(it, o.err)
	}
	l.observe(Observation{Kind: ObservedRetry, Op: o.step, Count: 1, Err: o.err})
	if o.change = o.change.Without(refused.Has); !o.change.Empty() {
		l.wrote(o, now)
		return
	}
	it.wait(&l.agenda.changes, now)
	l.repeat(it, now)
}

// withhold leaves out of a change what the target refuses, until there is
// nothing else to write and it is time to try that again, all of it at once.
// What is needed no more, or with another value, is refused no more.
func (l *loop) withhold(it *item, change registry.Change, now time.Time) registry.Change {
	if len(it.refusals) == 0 {
		return change
	}
	needed := values(change)
	maps.DeleteFunc(it.refusals, func(key string, r refusal) bool {
		value, still := needed[key]
		return !still || value != r.value
	})
	l.noteRefusals(it)
	if len(needed) == len(it.refusals) && !now.Before(it.refusedAt) {
		return change
	}
	return change.Without(func(key string) bool { _, refused := it.refusals[key]; return refused })
}

// reportRefusals tells of a refusal that is new.
func (l *loop) reportRefusals(it *item, err error) {
	l.tell(Event{
		Kind: EventRefused, Subject: it.group.String(), What: fmt.Sprintf("%d of its entries refused", len(it.refusals)),
		Why: err.Error(), Release: "they are tried again every " + l.opts.Retry.Max.String(),
	})
	l.opts.Log.Warn("target refused entries", "target", l.opts.Target, "group", it.group.String(), "entries", len(it.refusals), "err", err)
}

// noteRefusals notes what is refused, by whom it is claimed or was.
func (l *loop) noteRefusals(it *item) {
	by := make(map[note]registry.Refused)
	for key, r := range it.refusals {
		n := note{reason: ReasonRefused}
		if n.origin, n.known = l.planner.Winner(it.group, key); !n.known && it.orphans[key] != nil {
			n.origin, n.known = it.orphans[key].Origin, it.orphans[key].Known
		}
		if by[n] == nil {
			by[n] = make(registry.Refused)
		}
		by[n][key] = r.why
	}
	for n, keys := range by {
		n.detail, n.entries = keys.Error(), len(keys)
		it.notes = append(it.notes, n)
	}
}
