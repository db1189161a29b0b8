package guarantees

import (
	"maps"
	"slices"
)

// mostChecks bounds the work to find a shortest history.
const mostChecks = 5000

// Shortest returns the shortest part of a history in which the event of a violation still breaks its
// guarantee. The part has only events of the violation's group and, if it has one, of its key. It
// includes everything that the source held, because otherwise the part would be a different history.
func Shortest(owner string, history []Event, v Violation) []Event {
	broken := history[v.Index]
	var world, candidates []numbered // what the source held, and events that may be irrelevant
	var last map[string]string
	for i, e := range history[:v.Index+1] {
		if e.Group != broken.Group {
			continue
		}
		e, notified := about(e, v.Key)
		switch {
		case e.Kind == Desired && (len(world) == 0 || !maps.Equal(e.List, last)):
			world, last = append(world, numbered{i, e}), e.List
		case e.Kind != Desired && (notified || i == v.Index):
			candidates = append(candidates, numbered{i, e})
		}
	}
	checks := 0
	short := Shrink(candidates, func(some []numbered) bool {
		checks++
		return checks <= mostChecks && breaks(owner, together(world, some), v, broken)
	})
	return together(world, short)
}

// numbered is an event and its index.
type numbered struct {
	at int
	Event
}

// about returns the part of an event about a key, or the whole event without a key. It returns false
// if nothing is about the key. What a subscriber received is always about it.
func about(e Event, name string) (Event, bool) {
	if name == "" {
		return e, true
	}
	only := func(list map[string]string) map[string]string {
		if list == nil {
			return nil
		}
		some := make(map[string]string)
		if value, is := list[name]; is {
			some[name] = value
		}
		return some
	}
	all := e.Kind == Changed && len(e.Gone) == 0
	e.List, e.Owner = only(e.List), only(e.Owner)
	e.Gone = slices.DeleteFunc(slices.Clone(e.Gone), func(k string) bool { return k != name })
	return e, all || e.Kind == Notified || e.Kind == Final || len(e.List)+len(e.Gone) > 0
}

// together merges two parts of a history in order.
func together(world, rest []numbered) []Event {
	all := make(map[int]Event)
	for _, n := range slices.Concat(world, rest) {
		all[n.at] = n.Event
	}
	var events []Event
	for _, at := range slices.Sorted(maps.Keys(all)) {
		events = append(events, all[at])
	}
	return events
}

// breaks reports whether the last event of a history breaks the same guarantee.
func breaks(owner string, history []Event, v Violation, broken Event) bool {
	if len(history) == 0 || history[len(history)-1].At != broken.At || history[len(history)-1].Kind != broken.Kind {
		return false
	}
	return slices.ContainsFunc(Check(owner, history), func(again Violation) bool {
		return again.Guarantee == v.Guarantee && again.Key == v.Key && again.Index == len(history)-1
	})
}

// Shrink returns a part of a list that still fails, but does not fail without any one of its
// elements. It calls fails at most O(n²) times. The list itself must fail, and is not changed.
func Shrink[T any](list []T, fails func([]T) bool) []T {
	for size := len(list); size > 0; size /= 2 {
		for from := 0; from < len(list); {
			if rest := without(list, from, min(from+size, len(list))); fails(rest) {
				list = rest
				continue // now the next elements are at this index
			}
			from += size
		}
	}
	return again(list, fails)
}

// again removes single elements until none can be removed: an element may become unnecessary when
// others are removed.
func again[T any](list []T, fails func([]T) bool) []T {
	for from := range list {
		if rest := without(list, from, from+1); fails(rest) {
			return again(rest, fails)
		}
	}
	return list
}

func without[T any](list []T, from, to int) []T {
	rest := make([]T, 0, len(list)-(to-from))
	return append(append(rest, list[:from]...), list[to:]...)
}
