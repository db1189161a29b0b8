package bridge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// EntryChange is one entry that was written or deleted, for whom and why.
type EntryChange struct {
	Op      string        `json:"op"` // create, update, delete
	Key     string        `json:"key"`
	Bridge  string        `json:"bridge,omitempty"`
	Service registry.Name `json:"service,omitempty"` // that claims it, or claimed it last; empty where nobody is known
	Cause   string        `json:"cause"`
	Before  string        `json:"before,omitempty"` // its value
	After   string        `json:"after,omitempty"`
}

// What an entry can be done to.
const (
	opCreate = "create"
	opUpdate = "update"
	opDelete = "delete"
)

// An event has so many changes of a batch, the deletions first, and so much of
// each value: events are kept in memory. The log has all of it at level debug.
const (
	eventChanges = 10
	eventValue   = 1024
)

// applied reports the entries that were written: each in the log, the batch as
// an event, and how many they were of each bridge. It is called before what was
// written counts as there, while it is still known why.
func (j *journal) applied(o outcome, now time.Time) {
	type of struct{ bridge, op string }
	counts, ops := make(map[of]int, 1), make(map[string]int, 1)
	count := func(key, op string) {
		counts[of{j.nameOf(o.item, key), op}]++
		ops[op]++
	}
	for _, w := range o.change.Put {
		count(w.New.Key, opOf(w))
	}
	for _, h := range o.change.Delete {
		count(h.Key, opDelete)
	}
	if debug := j.opts.Log.Enabled(context.Background(), slog.LevelDebug); j.opts.OnEvent != nil || debug {
		j.trace(o, debug, fmt.Sprintf("%d entries created, %d updated, %d deleted", ops[opCreate], ops[opUpdate], ops[opDelete]))
	}
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b of) int { return cmp.Compare(a.bridge+a.op, b.bridge+b.op) }) {
		j.observe(Observation{
			Kind: ObservedApplied, Bridge: k.bridge, Op: k.op, Count: counts[k],
			Took: now.Sub(o.began), Latency: now.Sub(o.first),
		})
	}
}

// nameOf returns the bridge that claims a key or claimed it last.
func (j *journal) nameOf(it *item, key string) string {
	if origin, ok := j.planner.Winner(it.group, key); ok {
		return j.pipelines[origin.Bridge].Name
	}
	if o := it.orphans[key]; o != nil {
		return o.scope.name
	}
	return ""
}

func opOf(w registry.Write) string {
	if w.Old != nil {
		return opUpdate
	}
	return opCreate
}

// trace logs a batch entry by entry: after an incident the log says what was
// deleted, when and why.
func (j *journal) trace(o outcome, debug bool, what string) { //nolint:revive // what is wanted, not a mode
	logged := make([]EntryChange, 0, min(len(o.change.Delete)+len(o.change.Put), eventChanges))
	note := func(c EntryChange) {
		if debug {
			j.opts.Log.Debug("entry written", "target", j.opts.Target, "group", o.item.group.String(), "op", c.Op, "key", c.Key,
				"bridge", c.Bridge, "service", c.Service, "reason", c.Cause, "before", c.Before, "after", c.After)
		}
		if len(logged) < eventChanges {
			c.Before, c.After = shortened(c.Before), shortened(c.After)
			logged = append(logged, c)
		}
	}
	for _, h := range o.change.Delete {
		c := j.explain(o.item, h.Key, opDelete)
		c.Before = h.Value
		note(c)
	}
	for _, w := range o.change.Put {
		c := j.explain(o.item, w.New.Key, opOf(w))
		c.After = w.New.Value
		if w.Old != nil {
			c.Before = w.Old.Value
		}
		if debug || len(logged) < eventChanges {
			note(c)
		}
	}
	j.emit(Event{Kind: EventApplied, Bridge: one(logged), Subject: o.item.group.String(), What: what, Changes: logged})
}

// explain says for whom an entry was written or deleted, and why.
func (j *journal) explain(it *item, key, op string) EntryChange {
	c := EntryChange{Op: op, Key: key, Bridge: j.nameOf(it, key)}
	s := it.orphans[key]
	if origin, claimed := j.planner.Winner(it.group, key); claimed {
		c.Service = origin.Service
	} else if s != nil && s.Known {
		c.Service = s.Origin.Service
	}
	switch {
	case op == opCreate:
		c.Cause = "its service reports it"
	case op == opUpdate:
		c.Cause = "it is not as its service reports it"
	case s == nil:
		c.Cause = "another entry has its place, or it was not reported when the write began"
	case s.released != "":
		c.Cause = s.released
	case !s.Known:
		c.Cause = "no bridge has claimed it since the start"
	case s.missing():
		c.Cause = "full readings of its source lack it since " + s.since.UTC().Format(time.RFC3339)
	default:
		c.Cause = "its service reports it no more since " + s.since.UTC().Format(time.RFC3339)
	}
	return c
}

// one returns the bridge that all changes are of, empty where there are several.
func one(changes []EntryChange) string {
	first := changes[0].Bridge
	if slices.ContainsFunc(changes, func(c EntryChange) bool { return c.Bridge != first }) {
		return ""
	}
	return first
}

func shortened(value string) string {
	if len(value) <= eventValue {
		return value
	}
	return strings.ToValidUTF8(value[:eventValue], "") + "…"
}
