// Package guarantees checks a recorded history against the guarantees of the bridge. The history has
// what a source really held, what was written, and what subscribers received. The package does not
// depend on how the bridge works, and does no I/O.
package guarantees

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Guarantee is one guarantee of the bridge.
type Guarantee string

// The guarantees.
const (
	NeverLess       Guarantee = "NeverLess"       // no list that a subscriber received lacks an entry that always existed
	NoForeign       Guarantee = "NoForeign"       // no entry of another owner is replaced or deleted
	OneWriter       Guarantee = "OneWriter"       // one replica at a time writes a group, and terms increase
	NoSpuriousWrite Guarantee = "NoSpuriousWrite" // no write without a cause
	EventuallySame  Guarantee = "EventuallySame"  // in the end the target is equal to the source
	NoResurrection  Guarantee = "NoResurrection"  // withdrawn entries and older values do not come back without a cause
)

// All returns every guarantee.
func All() []Guarantee {
	return []Guarantee{NeverLess, NoForeign, OneWriter, NoSpuriousWrite, EventuallySame, NoResurrection}
}

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Desired  Kind = "desired"  // from now on the source really has List as all own entries of the group
	Wrote    Kind = "wrote"    // Who put List and deleted Gone, and it took effect
	Changed  Kind = "changed"  // another actor changed or lost the keys of Gone; without keys, every key of the group
	Notified Kind = "notified" // the subscriber Who received List as all entries of the group, of any owner
	Final    Kind = "final"    // long after the last fault, the target has List as all own entries of the group
)

// An Event is one event of a group of a target. Events are in the order in which they happened.
type Event struct {
	At    time.Duration // since the history began
	Kind  Kind
	Group string
	Who   string            // Wrote: the replica; Notified: the subscriber
	Term  int64             // Wrote: the term of the lease; 0: no lease
	List  map[string]string // by key; see Kind
	Gone  []string          // keys; see Kind
	Owner map[string]string // Wrote: owners of the entries that List replaced and Gone deleted, if any
}

// String returns the event as failing tests print it.
func (e Event) String() string {
	text := fmt.Sprintf("%8s %-7s %s", e.At, e.Kind, e.Group)
	if e.Who != "" {
		text += " by " + e.Who
	}
	if e.Term != 0 {
		text += fmt.Sprintf(" in term %d", e.Term)
	}
	if e.List != nil {
		text += fmt.Sprintf(" %v", e.List) // fmt prints maps in the order of their keys
	}
	if len(e.Gone) > 0 {
		text += fmt.Sprintf(" without %v", e.Gone)
	}
	return text
}

// A Violation is an event that breaks a guarantee.
type Violation struct {
	Guarantee Guarantee
	Index     int    // of the event, from 0
	Key       string // empty: not about a key
	Text      string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: event %d: %s", v.Guarantee, v.Index, v.Text)
}

// Check returns the violations in a history. The owner's entries are the own ones.
func Check(owner string, history []Event) []Violation {
	c := NewChecker(owner)
	for _, e := range history {
		c.Add(e)
	}
	return c.Violations()
}

// A Checker reads a history event by event. Its memory does not grow with the history. It must be
// used by one goroutine.
type Checker struct {
	owner  string
	n      int
	groups map[string]*group
	found  []Violation
}

// NewChecker returns a checker without events.
func NewChecker(owner string) *Checker {
	return &Checker{owner: owner, groups: make(map[string]*group)}
}

// maxViolations bounds the kept violations, because a broken guarantee is usually broken repeatedly.
const maxViolations = 100

// Violations returns the first violations, at most maxViolations.
func (c *Checker) Violations() []Violation { return slices.Clone(c.found) }

// Add reads the next event.
func (c *Checker) Add(e Event) {
	g := c.groups[e.Group]
	if g == nil {
		g = &group{keys: make(map[string]*key), keptFor: make(map[string]map[string]bool)}
		c.groups[e.Group] = g
	}
	report := func(which Guarantee, key, format string, args ...any) {
		if len(c.found) < maxViolations {
			c.found = append(c.found, Violation{which, c.n, key, strings.TrimSpace(key+" "+fmt.Sprintf(format, args...)) + " (" + e.String() + ")"})
		}
	}
	switch e.Kind {
	case Desired:
		g.desire(e.List)
	case Changed:
		g.changed(e.Gone)
	case Wrote:
		g.writer(e, report)
		g.wrote(e, c.owner, report)
	case Notified:
		g.notified(e, report)
	case Final:
		g.final(e, report)
	}
	c.n++
}

// A reporter records a violation, of a key or of none.
type reporter func(which Guarantee, key, format string, args ...any)

// A group is the known state of one group.
type group struct {
	desired map[string]string
	keys    map[string]*key
	keptFor map[string]map[string]bool // received keys that have been desired ever since, by subscriber
	term    int64
	last    string // the last writer
}

// A key is the known state of one key. It keeps few values: those that were desired since the last
// write.
type key struct {
	causes int             // changes since the first write that no write has followed yet
	since  map[string]bool // values that were desired at or after the last write
}

// key returns the state of a key. The start of the history is the cause of its first write.
func (g *group) key(name string) *key {
	k := g.keys[name]
	if k == nil {
		k = &key{causes: 1, since: make(map[string]bool)}
		g.keys[name] = k
	}
	return k
}

func (g *group) desire(next map[string]string) {
	for name, value := range next {
		k := g.key(name)
		if before, had := g.desired[name]; !had || before != value {
			k.causes++
			k.since[value] = true
		}
	}
	for name := range g.desired {
		if _, still := next[name]; still {
			continue
		}
		g.key(name).causes++
		g.forgets(name)
	}
	g.desired = maps.Clone(next)
}

// forgets records that a key did not exist for a moment, so that lists of subscribers may lack it
// until they receive it again.
func (g *group) forgets(name string) {
	for _, kept := range g.keptFor {
		delete(kept, name)
	}
}

func (g *group) changed(names []string) {
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(g.keys))
	}
	for _, name := range names {
		g.key(name).causes++
		g.forgets(name)
	}
}

func (g *group) writer(e Event, report reporter) {
	if e.Term == 0 {
		return
	}
	switch {
	case e.Term < g.term:
		report(OneWriter, "", "%s wrote in term %d after %s did in term %d", e.Who, e.Term, g.last, g.term)
	case e.Term == g.term && e.Who != g.last:
		report(OneWriter, "", "%s and %s both wrote in term %d", g.last, e.Who, e.Term)
	}
	g.term, g.last = max(g.term, e.Term), e.Who
}

func (g *group) wrote(e Event, owner string, report reporter) {
	for _, name := range slices.Sorted(maps.Keys(e.Owner)) {
		if whose := e.Owner[name]; whose != owner {
			report(NoForeign, name, "is of owner %q", whose)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.List)) {
		if k := g.key(name); !k.since[e.List[name]] {
			report(NoResurrection, name, "has not been %q since it was written last", e.List[name])
		}
		g.answered(name, report)
	}
	for _, name := range e.Gone {
		g.answered(name, report)
	}
}

// answered records a write of a key.
func (g *group) answered(name string, report reporter) {
	k := g.key(name)
	if k.causes == 0 {
		report(NoSpuriousWrite, name, "was written though nothing happened to it since the last time")
	}
	k.causes = max(0, k.causes-1)
	clear(k.since)
	if value, is := g.desired[name]; is {
		k.since[value] = true
	}
}

func (g *group) notified(e Event, report reporter) {
	for _, name := range slices.Sorted(maps.Keys(g.keptFor[e.Who])) {
		if _, there := e.List[name]; !there {
			report(NeverLess, name, "was there all the time")
		}
	}
	kept := make(map[string]bool)
	for name := range e.List {
		if _, desired := g.desired[name]; desired {
			kept[name] = true
		}
	}
	g.keptFor[e.Who] = kept
}

func (g *group) final(e Event, report reporter) {
	for _, name := range slices.Sorted(maps.Keys(g.desired)) {
		switch value, there := e.List[name]; {
		case !there:
			report(EventuallySame, name, "is missing")
		case value != g.desired[name]:
			report(EventuallySame, name, "is %q, want %q", value, g.desired[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.List)) {
		if _, desired := g.desired[name]; !desired {
			report(EventuallySame, name, "is left over")
		}
	}
}
