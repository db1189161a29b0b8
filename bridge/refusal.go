package bridge

import (
	"maps"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A refusal is what a target refuses under a key. It waits by itself, so that
// what has to be written beside it is written when it is due.
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

// withhold leaves out of a change what the target refuses, until there is
// nothing else to write and it is time to try that again, all of it at once.
// What is needed no more, or with another value, is refused no more.
func (d *draft) withhold(change registry.Change) registry.Change {
	if len(d.item.refusals) == 0 {
		return change
	}
	required := values(change)
	maps.DeleteFunc(d.item.refusals, func(key string, r refusal) bool {
		value, still := required[key]
		return !still || value != r.value
	})
	d.noteRefusals()
	if len(required) == len(d.item.refusals) && !d.now.Before(d.item.refusedAt) {
		return change
	}
	return change.Without(func(key string) bool { _, refused := d.item.refusals[key]; return refused })
}

// noteRefusals notes what is refused, by whom it is claimed or was.
func (d *draft) noteRefusals() {
	by := make(map[note]registry.Refused)
	for key, r := range d.item.refusals {
		n := note{reason: ReasonRefused}
		if n.origin, n.known = d.planner.Winner(d.item.group, key); !n.known && d.item.orphans[key] != nil {
			n.origin, n.known = d.item.orphans[key].Origin, d.item.orphans[key].Known
		}
		if by[n] == nil {
			by[n] = make(registry.Refused)
		}
		by[n][key] = r.why
	}
	for n, keys := range by {
		n.detail, n.entries = keys.Error(), len(keys)
		d.item.notes = append(d.item.notes, n)
	}
}
