package guarantees_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

type (
	event = guarantees.Event
	set   = map[string]string
)

func desired(list set) event { return event{Kind: guarantees.Desired, Group: "g", List: list} }

func wrote(put set, gone ...string) event {
	return event{Kind: guarantees.Wrote, Group: "g", Who: "one", List: put, Gone: gone}
}

func sent(list set) event {
	return event{Kind: guarantees.Notified, Group: "g", Who: "consumer", List: list}
}

func final(list set) event { return event{Kind: guarantees.Final, Group: "g", List: list} }

func changed(keys ...string) event {
	return event{Kind: guarantees.Changed, Group: "g", Gone: keys}
}

func in(term int64, who string, e event) event {
	e.Term, e.Who = term, who
	return e
}

func over(owner string, e event) event {
	e.Owner = make(set)
	for key := range e.List {
		e.Owner[key] = owner
	}
	for _, key := range e.Gone {
		e.Owner[key] = owner
	}
	return e
}

var (
	a  = set{"a": "1"}
	ab = set{"a": "1", "b": "1"}
	b  = set{"b": "1"}
	a2 = set{"a": "2"}
)

func TestCheck(t *testing.T) {
	untried := guarantees.All()
	for name, tt := range map[string]struct {
		history []event
		breaks  guarantees.Guarantee // empty: nothing
	}{
		"what is there is written once":               {[]event{desired(ab), wrote(ab), sent(ab), final(ab)}, ""},
		"it goes where it went":                       {[]event{desired(ab), wrote(ab), sent(ab), desired(a), wrote(nil, "b"), sent(a), final(a)}, ""},
		"it goes briefly, the list is late":           {[]event{desired(ab), wrote(ab), sent(ab), desired(a), desired(ab), sent(a), sent(ab)}, ""},
		"a list lacks what was always there":          {[]event{desired(ab), wrote(ab), sent(ab), sent(a)}, guarantees.NeverLess},
		"an empty list":                               {[]event{desired(a), wrote(a), sent(a), sent(nil)}, guarantees.NeverLess},
		"a list after somebody else deleted it":       {[]event{desired(ab), wrote(ab), sent(ab), changed("b"), sent(a), wrote(b), sent(ab)}, ""},
		"a list after the target lost everything":     {[]event{desired(ab), wrote(ab), sent(ab), changed(), sent(nil), wrote(ab), sent(ab), final(ab)}, ""},
		"a list lacks what was reported again":        {[]event{desired(a), sent(a), desired(nil), desired(a), sent(a), sent(nil)}, guarantees.NeverLess},
		"another subscriber was never notified of it": {[]event{desired(ab), wrote(ab), sent(ab), {Kind: guarantees.Notified, Group: "g", Who: "late", List: a}}, ""},
		"a list with what is of others":               {[]event{desired(a), wrote(a), sent(ab), sent(a)}, ""},
		"replaces what is of another":                 {[]event{desired(a), over("other", wrote(a))}, guarantees.NoForeign},
		"deletes what is of nobody":                   {[]event{desired(nil), over("", wrote(nil, "a"))}, guarantees.NoForeign},
		"replaces what is ours":                       {[]event{desired(a), over("me", wrote(a))}, ""},
		"two terms":                                   {[]event{desired(a), in(1, "one", wrote(a)), desired(ab), in(2, "two", wrote(b)), desired(b), in(2, "two", wrote(nil, "a"))}, ""},
		"an earlier term writes on":                   {[]event{desired(a), in(2, "two", wrote(a)), desired(ab), in(1, "one", wrote(b))}, guarantees.OneWriter},
		"two writers in a term":                       {[]event{desired(a), in(1, "one", wrote(a)), desired(ab), in(1, "two", wrote(b))}, guarantees.OneWriter},
		"written twice, after the beginning":          {[]event{desired(a), wrote(a), wrote(a), wrote(a)}, guarantees.NoSpuriousWrite},
		"deleted and written again without a cause":   {[]event{desired(a), wrote(a), wrote(nil, "a"), wrote(a)}, guarantees.NoSpuriousWrite},
		"another value is a cause":                    {[]event{desired(a), wrote(a), desired(a2), wrote(a2), final(a2)}, ""},
		"a value that was overtaken is written":       {[]event{desired(a), desired(a2), wrote(a), wrote(a2), final(a2)}, ""},
		"an older value comes back":                   {[]event{desired(a), wrote(a), desired(a2), wrote(a2), changed("a"), wrote(a)}, guarantees.NoResurrection},
		"what was withdrawn comes back":               {[]event{desired(a), wrote(a), desired(nil), wrote(nil, "a"), changed("a"), wrote(a)}, guarantees.NoResurrection},
		"it comes back because the source has it":     {[]event{desired(a), wrote(a), desired(nil), wrote(nil, "a"), desired(a), wrote(a), final(a)}, ""},
		"what was lost is written as known":           {[]event{desired(a), wrote(a), desired(nil), changed("a"), wrote(a), wrote(nil, "a"), final(nil)}, ""},
		"in the end one is missing":                   {[]event{desired(ab), wrote(a), final(a)}, guarantees.EventuallySame},
		"in the end one is left over":                 {[]event{desired(ab), wrote(ab), desired(a), final(ab)}, guarantees.EventuallySame},
		"in the end one has another value":            {[]event{desired(a), wrote(a), desired(a2), final(a)}, guarantees.EventuallySame},
		"groups are judged by themselves":             {[]event{desired(a), wrote(a), sent(a), {Kind: guarantees.Desired, Group: "h"}, {Kind: guarantees.Notified, Group: "h", Who: "consumer"}}, ""},
	} {
		untried = slices.DeleteFunc(untried, func(g guarantees.Guarantee) bool { return g == tt.breaks })
		t.Run(name, func(t *testing.T) {
			found := guarantees.Check("me", tt.history)
			if tt.breaks == "" && len(found) > 0 {
				t.Errorf("breaks %v", found)
			}
			if tt.breaks != "" && !slices.ContainsFunc(found, func(v guarantees.Violation) bool { return v.Guarantee == tt.breaks }) {
				t.Errorf("breaks %v, want %s", found, tt.breaks)
			}
		})
	}
	if len(untried) > 0 {
		t.Errorf("no case breaks %v", untried)
	}
}

func TestShrink(t *testing.T) {
	history := []event{desired(a), wrote(a), sent(a), desired(ab), wrote(b), sent(ab), sent(ab), changed("b"), desired(b), wrote(nil, "a"), sent(b), desired(ab), wrote(a), sent(ab), sent(b)}
	breaks := func(h []event) bool {
		return slices.ContainsFunc(guarantees.Check("me", h), func(v guarantees.Violation) bool { return v.Guarantee == guarantees.NeverLess })
	}
	short := guarantees.Shrink(history, breaks)
	if len(short) != 3 || !breaks(short) {
		t.Errorf("shrunk to %d events that break it: %v\n%v", len(short), breaks(short), short)
	}
	if len(history) != 15 || history[0].Kind != guarantees.Desired {
		t.Error("the history itself was changed")
	}
}

// The memory of a checker does not grow with the history.
func TestChecker_KeepsLittle(t *testing.T) {
	c := guarantees.NewChecker("me")
	for range 1000 {
		for _, e := range []event{desired(a), wrote(a), sent(a), desired(a2), wrote(a2), sent(a2)} {
			c.Add(e)
		}
	}
	if found := c.Violations(); len(found) > 0 {
		t.Errorf("Violations() = %v first, want none", found[0])
	}
	for range 1000 {
		c.Add(wrote(a))
	}
	if n := len(c.Violations()); n != 100 {
		t.Errorf("%d violations are kept, want 100", n)
	}
}

func TestEvent_String(t *testing.T) {
	e := in(3, "one", wrote(ab, "c"))
	if got := e.String(); !strings.Contains(got, "wrote") || !strings.Contains(got, "by one in term 3 map[a:1 b:1] without [c]") {
		t.Errorf("String() = %s, want who wrote what in which term", got)
	}
}

// The shortest history has only events of the group and key of the violation, and everything that the
// source held of them.
func TestShortest(t *testing.T) {
	other := func(e event) event { e.Group = "h"; return e }
	late := func(e event) event { e.Who = "late"; return e }
	abc := set{"a": "1", "b": "1", "c": "1"}
	for name, tt := range map[string]struct {
		history []event
		breaks  guarantees.Guarantee
		want    []event
	}{
		"a list that lacks a key": {
			[]event{desired(ab), other(desired(a)), wrote(ab), sent(ab), late(sent(ab)), desired(abc), wrote(set{"c": "1"}), sent(abc), sent(set{"a": "1", "c": "1"})},
			guarantees.NeverLess,
			[]event{desired(b), sent(b), sent(set{})},
		},
		"a key that comes back": {
			[]event{desired(ab), wrote(ab), sent(ab), desired(a), wrote(nil, "b"), sent(a), changed("b"), wrote(b)},
			guarantees.NoResurrection,
			[]event{desired(b), desired(set{}), wrote(nil, "b"), wrote(b)},
		},
		"a write too many": {
			[]event{desired(ab), wrote(ab), sent(ab), wrote(a), sent(ab), wrote(a)},
			guarantees.NoSpuriousWrite,
			[]event{desired(a), wrote(a), wrote(a), wrote(a)},
		},
		"two writers, who are about no key": {
			[]event{desired(a), in(1, "one", wrote(a)), desired(ab), sent(a), in(2, "two", wrote(b)), in(1, "one", wrote(nil, "b"))},
			guarantees.OneWriter,
			[]event{desired(a), desired(ab), in(2, "two", wrote(b)), in(1, "one", wrote(nil, "b"))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tt.history {
				tt.history[i].At = time.Duration(i)
			}
			found := guarantees.Check("me", tt.history)
			i := slices.IndexFunc(found, func(v guarantees.Violation) bool { return v.Guarantee == tt.breaks })
			if i < 0 {
				t.Fatalf("breaks %v", found)
			}
			text := func(events []event) (lines []string) {
				for _, e := range events {
					e.At = 0
					lines = append(lines, e.String())
				}
				return lines
			}
			if got, want := text(guarantees.Shortest("me", tt.history, found[i])), text(tt.want); !slices.Equal(got, want) {
				t.Errorf("of %v\n%s\nwant\n%s", found[i], strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
