package plan

import (
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A group holds both sides of one registry.Group. Its lists are sorted, and
// equal texts of both sides are one string: much of the memory of a bridge is
// here.
type group struct {
	exclusive bool
	claims    []claim              // by origin
	held      []held               // by key, then value
	released  map[string][]release // by key: claims that ended, the last one last
}

type claim struct {
	origin  Origin
	entries []pair // by key, then value
}

// offers reports whether an endpoint is among what is claimed.
func (c claim) offers() bool {
	return slices.ContainsFunc(c.entries, func(e pair) bool { return registry.IsEndpoint(e.key) })
}

type held struct {
	pair           // of another owner's entry only the key is kept
	owner   string // as registry.Held.Owner has it
	version int64
	live    bool
}

// release is a claim to a key that ended.
type release struct {
	origin   Origin
	evidence Evidence
}

func (g *group) claimOf(origin Origin) []pair {
	if i, ok := g.find(origin); ok {
		return g.claims[i].entries
	}
	return nil
}

func (g *group) find(origin Origin) (int, bool) {
	return slices.BinarySearchFunc(g.claims, origin, func(c claim, o Origin) int { return c.origin.Compare(o) })
}

// claim replaces the claim of an origin and reports whether that changed it.
func (g *group) claim(origin Origin, evidence Evidence, entries []registry.Entry) bool {
	i, ok := g.find(origin)
	var before []pair
	if ok {
		before = g.claims[i].entries
	}
	if slices.EqualFunc(before, entries, pair.is) {
		return false
	}
	next := pairs(entries)
	if slices.Equal(before, next) {
		return false
	}
	g.remember(origin, evidence, before, next)
	g.share(next)
	switch {
	case len(next) == 0:
		g.claims = slices.Delete(g.claims, i, i+1)
	case ok:
		g.claims[i].entries = next
	default:
		g.claims = slices.Insert(g.claims, i, claim{origin, next})
	}
	return true
}

// pairs returns entries as a group holds them.
func pairs(entries []registry.Entry) []pair {
	out := make([]pair, len(entries))
	for i, e := range entries {
		out[i] = newPair(e.Key, e.Value)
	}
	if !slices.IsSortedFunc(out, pair.compare) {
		slices.SortFunc(out, pair.compare)
	}
	return slices.Compact(out)
}

// remember keeps the claims that ended, by the keys that are claimed no longer.
func (g *group) remember(origin Origin, evidence Evidence, before, next []pair) {
	for _, e := range before {
		if _, still := findKey(next, e.key); !still {
			if g.released == nil {
				g.released = make(map[string][]release, 1)
			}
			others := slices.DeleteFunc(g.released[e.key], func(r release) bool { return r.origin == origin })
			g.released[e.key] = append(others, release{origin, evidence})
		}
	}
	if len(g.released) > 0 {
		for _, e := range next {
			delete(g.released, e.key)
		}
	}
}

// share makes claims use the strings of what is held and of each other, where
// they are equal.
func (g *group) share(claimed []pair) {
	var rests pool
	for _, h := range g.held[:min(len(g.held), len(rests.recent))] {
		rests.share(h.rest)
	}
	for i, e := range claimed {
		j, _ := slices.BinarySearchFunc(g.held, e, func(h held, e pair) int { return h.compare(e) })
		if j < len(g.held) && g.held[j].pair == e {
			claimed[i] = g.held[j].pair
		}
		claimed[i].rest = rests.share(claimed[i].rest)
	}
}

// shareClaimed returns an entry in the strings of a claim, where they are equal.
func (g *group) shareClaimed(e pair) pair {
	for _, c := range g.claims {
		if j, ok := findKey(c.entries, e.key); ok {
			if c.entries[j] == e {
				return c.entries[j]
			}
			e.key = c.entries[j].key
		}
	}
	return e
}

func findKey(entries []pair, key string) (int, bool) {
	return slices.BinarySearchFunc(entries, key, func(e pair, key string) int { return strings.Compare(e.key, key) })
}

// observe replaces what is held and reports whether ours differ from before.
func (g *group) observe(owner string, list []registry.Held) bool {
	next := make([]held, 0, len(list))
	for _, h := range list {
		e := held{pair: pair{key: h.Key}, owner: h.Owner, version: h.Version, live: h.Live}
		if h.Owner == owner {
			e.pair, e.owner = g.shareClaimed(newPair(h.Key, h.Value)), owner
		}
		next = append(next, e)
	}
	slices.SortStableFunc(next, func(a, b held) int { return a.compare(b.pair) })
	same := slices.EqualFunc(ownedBy(g.held, owner), ownedBy(next, owner), func(a, b held) bool {
		return a.pair == b.pair && a.live == b.live
	})
	g.held = next
	g.forget()
	return !same
}

func ownedBy(list []held, owner string) []held {
	if !slices.ContainsFunc(list, func(h held) bool { return h.owner != owner }) {
		return list
	}
	var out []held
	for _, h := range list {
		if h.owner == owner {
			out = append(out, h)
		}
	}
	return out
}

// forget drops the claims that ended to keys that are not held.
func (g *group) forget() {
	for key := range g.released {
		if j, _ := g.findHeld(key); j == len(g.held) || g.held[j].key != key {
			delete(g.released, key)
		}
	}
	if len(g.released) == 0 {
		g.released = nil
	}
}

func (g *group) findHeld(key string) (int, bool) {
	return slices.BinarySearchFunc(g.held, key, func(h held, key string) int { return strings.Compare(h.key, key) })
}

// apply takes in what a change made of the group.
func (g *group) apply(owner string, c registry.Change) {
	gone := make([]pair, 0, len(c.Delete)+len(c.Put))
	for _, h := range c.Delete {
		gone = append(gone, newPair(h.Key, h.Value))
	}
	for _, w := range c.Put {
		if w.Old != nil && !w.Beside {
			gone = append(gone, newPair(w.Old.Key, w.Old.Value))
		}
	}
	slices.SortFunc(gone, pair.compare)
	next := make([]held, 0, len(g.held)+len(c.Put)-len(gone))
	for _, h := range g.held {
		for len(gone) > 0 && gone[0].compare(h.pair) < 0 {
			gone = gone[1:]
		}
		if h.owner == owner && len(gone) > 0 && gone[0] == h.pair {
			gone = gone[1:]
			continue
		}
		next = append(next, h)
	}
	for _, w := range c.Put {
		next = append(next, held{pair: g.shareClaimed(newPair(w.New.Key, w.New.Value)), owner: owner, live: true})
	}
	slices.SortStableFunc(next, func(a, b held) int { return a.compare(b.pair) })
	g.held = next
	g.forget()
}

func (g *group) sessionLost(owner string) bool {
	lost := false
	for i := range g.held {
		if g.held[i].owner == owner {
			g.held[i].live, lost = false, true
		}
	}
	return lost
}

func (g *group) owned(owner string) (n int) {
	for _, h := range g.held {
		if h.owner == owner {
			n++
		}
	}
	return n
}

// A pair is the key and the value of an entry. Values are long, and often
// begin as their key does and continue as the others of their group: so only the
// rest is kept, in one string for all that have the same. It is comparable;
// equal entries are equal pairs.
type pair struct {
	key  string
	rest string // of the value
	from int    // where it begins; before that the value is as the key
}

func newPair(key, value string) pair {
	from, most := 0, min(len(key), len(value))
	if strings.HasPrefix(value, key) {
		from = len(key)
	}
	for from < most && key[from] == value[from] {
		from++
	}
	return pair{key: key, rest: value[from:], from: from}
}

func (a pair) value() string { return a.key[:a.from] + a.rest }

// is reports whether the pair is that of an entry.
func (a pair) is(e registry.Entry) bool {
	return a.key == e.Key && len(e.Value) == a.from+len(a.rest) && e.Value[:a.from] == a.key[:a.from] && e.Value[a.from:] == a.rest
}

func (a pair) compare(b pair) int {
	if c := strings.Compare(a.key, b.key); c != 0 {
		return c
	}
	if a.from == b.from {
		return strings.Compare(a.rest, b.rest)
	}
	return strings.Compare(a.value(), b.value())
}

// A pool makes one string of equal ones, as far as they come close to each
// other: a group of thousands may have as many that differ.
type pool struct {
	recent [8]string
	next   int
}

func (p *pool) share(s string) string {
	for _, r := range p.recent {
		if r == s {
			return r
		}
	}
	p.recent[p.next%len(p.recent)] = s
	p.next++
	return s
}
