package plan

import (
	"maps"
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
	owned     int                  // how many of them are ours
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
	claimed := pairs(entries)
	if slices.Equal(before, claimed) {
		return false
	}
	g.remember(origin, evidence, before, claimed)
	g.share(claimed)
	switch {
	case len(claimed) == 0:
		g.claims = slices.Delete(g.claims, i, i+1)
	case ok:
		g.claims[i].entries = claimed
	default:
		g.claims = slices.Insert(g.claims, i, claim{origin, claimed})
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
func (g *group) remember(origin Origin, evidence Evidence, before, claimed []pair) {
	left := claimed
	for _, e := range before {
		var still bool
		if _, left, still = next(left, e.key); still {
			continue
		}
		if g.released == nil {
			g.released = make(map[string][]release, 1)
		}
		others := slices.DeleteFunc(g.released[e.key], func(r release) bool { return r.origin == origin })
		g.released[e.key] = append(others, release{origin, evidence})
	}
	if len(g.released) > 0 {
		for _, e := range claimed {
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
	stored := g.held
	for i, e := range claimed {
		var h held
		if h, stored, _ = next(stored, e.key); h.pair == e {
			claimed[i] = h.pair
		}
		claimed[i].rest = rests.share(claimed[i].rest)
	}
}

// match has what is stored of ours, in order, use the strings of the claims to its
// keys where they are equal, and returns who claims each.
func (g *group) match(stored []held, owner string) []Origin {
	want, origins := g.desired(), make([]Origin, len(stored))
	for i, h := range stored {
		w, rest, ok := next(want, h.key)
		want, origins[i] = rest, w.origin
		switch {
		case !ok:
		case w.pair == h.pair:
			stored[i].pair = w.pair
		case h.owner == owner:
			stored[i].key = w.key
		}
	}
	return origins
}

// find returns where a key is in a list in order, or would be.
func find[T interface{ name() string }](list []T, key string) (int, bool) {
	return slices.BinarySearchFunc(list, key, func(e T, key string) int { return strings.Compare(e.name(), key) })
}

// next cuts the first element with a key off a list in order, and all before it.
func next[T interface{ name() string }](list []T, key string) (first T, rest []T, found bool) {
	i := 0
	if len(list) > 0 && list[0].name() < key { // else they go side by side
		i, _ = find(list, key)
	}
	if i == len(list) || list[i].name() != key {
		return first, list[i:], false
	}
	return list[i], list[i+1:], true
}

// observe replaces what is held and reports whether ours differ from before.
func (g *group) observe(owner string, list []registry.Held) bool {
	stored := make([]held, len(list))
	for i, h := range list {
		stored[i] = held{pair: pair{key: h.Key}, owner: h.Owner, version: h.Version, live: h.Live}
		if h.Owner == owner {
			stored[i].pair, stored[i].owner = newPair(h.Key, h.Value), owner
		}
	}
	slices.SortStableFunc(stored, func(a, b held) int { return a.compare(b.pair) })
	g.match(stored, owner)
	before, ours := ownedBy(g.held, owner), ownedBy(stored, owner)
	g.hold(stored, len(ours))
	return !slices.EqualFunc(before, ours, func(a, b held) bool { return a.pair == b.pair && a.live == b.live })
}

// hold replaces what is held, so many of it ours, and drops the claims that ended to
// other keys.
func (g *group) hold(stored []held, owned int) {
	g.held, g.owned = stored, owned
	maps.DeleteFunc(g.released, func(key string, _ []release) bool {
		_, ok := find(stored, key)
		return !ok
	})
	if len(g.released) == 0 {
		g.released = nil
	}
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

// sides returns what a change stores in a group, and what it removes.
func sides(owner string, c registry.Change) (put []held, gone []pair) {
	put, gone = make([]held, len(c.Put)), make([]pair, 0, len(c.Delete))
	for i, w := range c.Put {
		put[i] = held{pair: newPair(w.New.Key, w.New.Value), owner: owner, live: true}
		if w.Old != nil && !w.Beside {
			gone = append(gone, newPair(w.Old.Key, w.Old.Value))
		}
	}
	for _, h := range c.Delete {
		gone = append(gone, newPair(h.Key, h.Value))
	}
	slices.SortFunc(gone, pair.compare)
	return put, gone
}

// apply records that a change was made, and returns who claims what was put.
func (g *group) apply(owner string, c registry.Change) []Origin {
	put, gone := sides(owner, c)
	origins, owned := g.match(put, owner), g.owned+len(put)
	stored := make([]held, 0, len(g.held)+len(put))
	for _, h := range g.held {
		for len(gone) > 0 && gone[0].compare(h.pair) < 0 {
			gone = gone[1:]
		}
		if h.owner == owner && len(gone) > 0 && gone[0] == h.pair {
			gone, owned = gone[1:], owned-1
			continue
		}
		for len(put) > 0 && put[0].compare(h.pair) < 0 {
			stored, put = append(stored, put[0]), put[1:]
		}
		stored = append(stored, h)
	}
	g.hold(append(stored, put...), owned)
	return origins
}

func (g *group) loseSession(owner string) bool {
	for i := range g.held {
		g.held[i].live = g.held[i].live && g.held[i].owner != owner
	}
	return g.owned > 0
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

func (a pair) name() string { return a.key }

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
