// Package guarantees checks a recorded history against what the bridge
// promises: what a source truly held, what was written, and what subscribers
// were sent. It knows nothing of how the bridge works, and does no I/O.
package guarantees

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Guarantee is one promise.
type Guarantee string

// The guarantees.
const (
	NeverLess       Guarantee = "NeverLess"       // no list that a subscriber was sent lacks what was there all the time
	NoForeign       Guarantee = "NoForeign"       // no entry of another owner is replaced or deleted
	OneWriter       Guarantee = "OneWriter"       // of several replicas one writes a group at a time, in rising terms
	NoSpuriousWrite Guarantee = "NoSpuriousWrite" // no write without a cause
	EventuallySame  Guarantee = "EventuallySame"  // in the end the target holds what the source has
	NoResurrection  Guarantee = "NoResurrection"  // what was withdrawn does not come back by itself, nor an older value
)

// All returns every guarantee.
func All() []Guarantee {
	return []Guarantee{NeverLess, NoForeign, OneWriter, NoSpuriousWrite, EventuallySame, NoResurrection}
}

// Kind says what an event means.
type Kind string

// The kinds of events.
const (
	Desired  Kind = "desired"  // from now on the source truly has what makes List, all of ours in the group
	Wrote    Kind = "wrote"    // Who put List and deleted Gone, and it took effect
	Changed  Kind = "changed"  // somebody else changed or lost the keys of Gone, or with none every key of the group
	Notified Kind = "notified" // the subscriber Who was notified that the group holds List, whoever owns it
	Final    Kind = "final"    // long after the last fault the target holds List, all of ours in the group
)

// An Event is one thing that happened to one group of a target. Events come in
// the order in which they happened.
type Event struct {
	At    time.Duration // since the history began
	Kind  Kind
	Group string
	Who   string            // Wrote: the replica; Notified: the subscriber
	Term  int64             // Wrote: of the lease it was written under; 0: there is none
	List  map[string]string // by key, as its kind says
	Gone  []string          // keys, as the kind says
	Owner map[string]string // Wrote: whose the entries were that List replaced and Gone deleted; none for keys that were free
}

// String returns the event as a failed test prints it.
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

// A Violation is an event that broke a guarantee.
type Violation struct {
	Guarantee Guarantee
	Index     int    // of the event, from 0
	Key       string // empty where it is not about one
	Text      string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: event %d: %s", v.Guarantee, v.Index, v.Text)
}

// Check returns everything that broke a guarantee, of which owner is whose
// entries are ours.
func Check(owner string, history []Event) []Violation {
	c := NewChecker(owner)
	for _, e := range history {
		c.Add(e)
	}
	return c.Violations()
}

// A Checker reads a history event by event, in memory that does not grow
// with its length. It is for one goroutine.
type Checker struct {
	owner  string
	n      int
	groups map[string]*group
	found  []Violation
}

// NewChecker returns a checker that has seen nothing.
func NewChecker(owner string) *Checker {
	return &Checker{owner: owner, groups: make(map[string]*group)}
}

// maxViolations is how many violations are kept: a broken guarantee is mostly
// broken again and again.
const maxViolations = 100

// Violations returns the first that were found.
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

// A reporter records what broke a guarantee, of one key or of none.
type reporter func(which Guarantee, key, format string, args ...any)

// A group is what is known of one group so far.
type group struct {
	desired map[string]string
	keys    map[string]*key
	keptFor map[string]map[string]bool // by subscriber: keys it was notified of that have been desired ever since
	term    int64
	last    string // who wrote in it
}

// A key is what is known of one key. Values are few: only those that it was
// desired to have since it was written last.
type key struct {
	causes int             // changes since the first write that no write answered yet
	since  map[string]bool // values that were desired at or after the last write
}

// key returns what is known of a key; the first write has no other cause
// than the beginning of the history.
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

// forgets records that a key was not there for a moment, so that no
// subscriber has to see it until it is notified of it anew.
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

// answered records that a key was written.
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
