package plan

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A group holds both sides of one registry.Group, row by row. Equal texts of both
// sides are one string: much of the memory of a bridge is here.
type group struct {
	exclusive bool
	claims    []*claim             // by origin
	rows      []keyRow             // by key
	counts    Counts               // of what is held
	released  map[string][]release // by key: claims that ended, the last one last
}

// A claim is what an origin claims in a group.
type claim struct {
	origin  Origin
	entries int
	offers  bool // one of them is an endpoint
}

// A keyRow is what is claimed and what is held under one key.
type keyRow struct {
	key    string
	wants  []want      // by origin, then value: the first wins
	stored []storedRow // by value
}

type want struct {
	content // live

	claim *claim
}

type storedRow struct {
	content // without a value where it is another owner's

	owner   string // as registry.Stored.Owner has it
	version int64
}

// release is a claim to a key that ended.
type release struct {
	origin   Origin
	evidence Evidence
}

// row returns the row of a key, nil if there is none.
func (g *group) row(key string) *keyRow {
	i, ok := slices.BinarySearchFunc(g.rows, key, func(r keyRow, key string) int { return strings.Compare(r.key, key) })
	if !ok {
		return nil
	}
	return &g.rows[i]
}

// A cursor visits the rows of a group in key order, and makes those that are missing.
type cursor struct {
	group     *group
	next      int
	added     []keyRow
	onSkipped func(*keyRow) // is given each row that is not asked for
}

// row returns the row of a key, which is behind all that were asked for before. It is
// valid until the next call.
func (c *cursor) row(key string) *keyRow {
	rows := c.group.rows
	for ; c.next < len(rows) && rows[c.next].key < key; c.next++ {
		c.onSkipped(&rows[c.next])
	}
	if c.next < len(rows) && rows[c.next].key == key {
		c.next++
		return &rows[c.next-1]
	}
	c.added = append(c.added, keyRow{key: key})
	return &c.added[len(c.added)-1]
}

// end visits the rows that are left, and adds those that were missing.
func (c *cursor) end() {
	g := c.group
	for ; c.next < len(g.rows); c.next++ {
		c.onSkipped(&g.rows[c.next])
	}
	isLast := len(g.rows) == 0 || len(c.added) == 0 || g.rows[len(g.rows)-1].key < c.added[0].key
	if g.rows = append(g.rows, c.added...); !isLast {
		slices.SortFunc(g.rows, func(a, b keyRow) int { return strings.Compare(a.key, b.key) })
	}
}

func (g *group) claimIndex(origin Origin) (int, bool) {
	return slices.BinarySearchFunc(g.claims, origin, func(c *claim, o Origin) int { return c.origin.Compare(o) })
}

// entriesOf returns how many entries an origin claims.
func (g *group) entriesOf(origin Origin) int {
	if i, ok := g.claimIndex(origin); ok {
		return g.claims[i].entries
	}
	return 0
}

// replaceClaim replaces the claim of an origin by entries in order, no two of which are
// equal. It reports whether that changed it.
func (g *group) replaceClaim(origin Origin, evidence Evidence, entries []registry.Entry) (changed bool) {
	at, ok := g.claimIndex(origin)
	if !ok {
		g.claims = slices.Insert(g.claims, at, &claim{origin: origin})
	}
	c, texts := g.claims[at], g.recentTexts()
	rows := cursor{group: g, onSkipped: func(r *keyRow) {
		if r.replaceWants(c, nil, &texts) {
			g.recordRelease(r.key, release{origin, evidence})
			changed = true
		}
	}}
	for same := range chunks(entries, func(a, b *registry.Entry) bool { return a.Key == b.Key }) {
		if rows.row(same[0].Key).replaceWants(c, same, &texts) {
			changed = true
		}
	}
	rows.end()
	c.entries, c.offers = len(entries), slices.ContainsFunc(entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) })
	if c.entries == 0 {
		g.claims = slices.Delete(g.claims, at, at+1)
	}
	if changed && len(g.released) > 0 {
		for _, e := range entries {
			delete(g.released, e.Key)
		}
	}
	return changed
}

// replaceWants replaces the wants of a claim and reports whether that changed them.
func (r *keyRow) replaceWants(c *claim, entries []registry.Entry, texts *pool) bool {
	from, to := r.wantsRange(c)
	if slices.EqualFunc(r.wants[from:to], entries, func(w want, e registry.Entry) bool { return w.hasValue(e.Key, e.Value) }) {
		return false
	}
	r.wants = slices.Delete(r.wants, from, to)
	for i, e := range entries {
		v := r.content(e.Value)
		v.rest = texts.share(v.rest)
		r.wants = slices.Insert(r.wants, from+i, want{v, c})
	}
	return true
}

// wantsRange returns where the wants of a claim are, or would be.
func (r *keyRow) wantsRange(c *claim) (from, to int) {
	for from < len(r.wants) && r.wants[from].claim != c && r.wants[from].claim.origin.Compare(c.origin) < 0 {
		from++
	}
	for to = from; to < len(r.wants) && r.wants[to].claim == c; {
		to++
	}
	return from, to
}

// recordRelease records that a claim to a key ended.
func (g *group) recordRelease(key string, r release) {
	if g.released == nil {
		g.released = make(map[string][]release, 1)
	}
	others := slices.DeleteFunc(g.released[key], func(o release) bool { return o.origin == r.origin })
	g.released[key] = append(others, r)
}

// active returns the only claim that counts in an exclusive group: the first that has
// endpoints, because a service without any is to keep no other from its place. It is
// nil where all claims count.
func (g *group) active() *claim {
	if !g.exclusive || len(g.claims) < 2 {
		return nil
	}
	return g.claims[max(0, slices.IndexFunc(g.claims, func(c *claim) bool { return c.offers }))]
}

// desired returns the wants that count, of which the first wins.
func (r *keyRow) desired(active *claim) []want {
	if active == nil {
		return r.wants
	}
	from, to := r.wantsRange(active)
	return r.wants[from:to]
}

// winningOrigin returns whose claim to the key is honoured.
func (r *keyRow) winningOrigin(active *claim) Origin {
	if wants := r.desired(active); len(wants) > 0 {
		return wants[0].claim.origin
	}
	return Origin{}
}

// observe replaces what is held. It reports whether ours differ from before, and the
// keys under which there is nothing of ours any more.
func (g *group) observe(owner string, list []registry.Stored) (differs bool, lost []string) {
	byKey := func(a, b registry.Stored) int { return strings.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(list, byKey) {
		list = slices.Clone(list)
		slices.SortStableFunc(list, byKey)
	}
	observe := func(r *keyRow, same []registry.Stored) {
		g.addToCounts(owner, r, -1)
		ours := indexOfOwner(r.stored, owner) >= 0
		if r.observeStored(owner, same) {
			differs = true
			if ours && indexOfOwner(r.stored, owner) < 0 {
				lost = append(lost, r.key)
			}
		}
		g.addToCounts(owner, r, +1)
	}
	rows := cursor{group: g, onSkipped: func(r *keyRow) { observe(r, nil) }}
	for same := range chunks(list, sameKey) {
		observe(rows.row(same[0].Key), same)
	}
	rows.end()
	g.prune()
	return differs, lost
}

func sameKey(a, b *registry.Stored) bool { return a.Key == b.Key }

// observeStored replaces what is held under a key and reports whether ours differ from before.
func (r *keyRow) observeStored(owner string, list []registry.Stored) bool {
	if r.updateVersions(owner, list) {
		return false
	}
	before := r.stored
	r.stored = nil
	for _, h := range list {
		c := content{live: h.Live, leaving: h.Leaving}
		if h.Owner == owner {
			c = r.content(h.Value)
			c.live = h.Live
		}
		r.addStored(storedRow{c, h.Owner, h.Version})
	}
	return !slices.EqualFunc(ownedBy(before, owner), ownedBy(r.stored, owner), func(a, b storedRow) bool { return a.content == b.content })
}

// updateVersions records the versions of what is held where nothing else changed, as in most
// readings, and reports whether that is so.
func (r *keyRow) updateVersions(owner string, list []registry.Stored) bool {
	same := func(a storedRow, b registry.Stored) bool {
		return a.owner == b.Owner && a.live == b.Live && a.leaving == (b.Leaving && a.owner != owner) && (a.owner != owner || a.hasValue(b.Key, b.Value))
	}
	if !slices.EqualFunc(r.stored, list, same) {
		return false
	}
	for i, h := range list {
		r.stored[i].version = h.Version
	}
	return true
}

// applyChange records that a change was made, and returns who claims what was put.
func (g *group) applyChange(owner string, c registry.Change) []Origin {
	gone := cursor{group: g, onSkipped: func(*keyRow) {}}
	for same := range chunks(c.Delete, sameKey) {
		r := gone.row(same[0].Key)
		for _, h := range same {
			g.remove(owner, r, h.Value)
		}
	}
	gone.end()
	origins, active := make([]Origin, len(c.Put)), g.active()
	put := cursor{group: g, onSkipped: func(*keyRow) {}}
	for i := range c.Put {
		w := &c.Put[i]
		r := put.row(w.New.Key)
		if w.Old != nil && !w.KeepOld {
			g.remove(owner, r, w.Old.Value)
		}
		origins[i] = r.winningOrigin(active)
		r.addStored(storedRow{content: r.content(w.New.Value), owner: owner})
		g.counts.Owned++
	}
	put.end()
	g.prune()
	return origins
}

// addStored adds an entry to what is held.
func (r *keyRow) addStored(h storedRow) {
	r.stored = append(r.stored, h)
	slices.SortStableFunc(r.stored, func(a, b storedRow) int { return a.compare(r.key, b.content) })
}

// remove removes an entry of ours from what is held.
func (g *group) remove(owner string, r *keyRow, value string) {
	i := slices.IndexFunc(r.stored, func(h storedRow) bool { return h.owner == owner && h.hasValue(r.key, value) })
	if i >= 0 {
		r.stored = slices.Delete(r.stored, i, i+1)
		g.counts.Owned--
	}
}

// addToCounts adds what is held under a key to the counts, or subtracts it.
func (g *group) addToCounts(owner string, r *keyRow, sign int) {
	for _, h := range r.stored {
		if h.owner == owner {
			g.counts.Owned += sign
		} else {
			g.counts.Foreign += sign
		}
	}
}

// prune drops the rows where nothing is claimed or held, and the claims that ended to
// keys that are not held.
func (g *group) prune() {
	maps.DeleteFunc(g.released, func(key string, _ []release) bool {
		r := g.row(key)
		return r == nil || len(r.stored) == 0
	})
	g.rows = slices.DeleteFunc(g.rows, func(r keyRow) bool { return len(r.wants)+len(r.stored) == 0 })
}

// indexOfOwner returns which entry is the first of an owner; negative: none is.
func indexOfOwner(list []storedRow, owner string) int {
	return slices.IndexFunc(list, func(h storedRow) bool { return h.owner == owner })
}

func ownedBy(list []storedRow, owner string) []storedRow {
	isOther := func(h storedRow) bool { return h.owner != owner }
	if !slices.ContainsFunc(list, isOther) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), isOther)
}

func (g *group) loseSession(owner string) bool {
	for _, r := range g.rows {
		for i, h := range r.stored {
			r.stored[i].live = h.live && h.owner != owner
		}
	}
	return g.counts.Owned > 0
}

// A content is the value of an entry, and whether this session holds it. Values are
// long, and often begin as their key does and continue as the others of their group: so
// only the rest is kept, in one string for all that have the same. It is comparable:
// under one key, equal contents are equal.
type content struct {
	rest    string // of the value
	from    int32  // where it begins; before that the value is as the key
	live    bool
	leaving bool // of another owner, which yields
}

// content returns a value under the key, live, in strings that the row has already.
func (r *keyRow) content(value string) content {
	for _, w := range r.wants {
		if w.hasValue(r.key, value) {
			return w.content
		}
	}
	for _, h := range r.stored {
		if h.hasValue(r.key, value) {
			return content{rest: h.rest, from: h.from, live: true}
		}
	}
	from := 0
	if strings.HasPrefix(value, r.key) {
		from = len(r.key)
	}
	for from < min(len(r.key), len(value)) && r.key[from] == value[from] {
		from++
	}
	return content{rest: value[from:], from: int32(from), live: true} //nolint:gosec // keys are shorter
}

// value returns the value of an entry with the key.
func (c content) value(key string) string { return key[:c.from] + c.rest }

// hasValue reports whether an entry with the key has the value.
func (c content) hasValue(key, value string) bool {
	from := int(c.from)
	return len(value) == from+len(c.rest) && value[:from] == key[:from] && value[from:] == c.rest
}

// compare orders values under one key.
func (c content) compare(key string, o content) int {
	if c.from == o.from {
		return strings.Compare(c.rest, o.rest)
	}
	return strings.Compare(c.value(key), o.value(key))
}

// A pool makes one string of equal ones, as far as they come close to each other: a
// group of thousands may have as many that differ.
type pool struct {
	recent [8]string
	next   int
}

// recentTexts returns a pool of what is held first.
func (g *group) recentTexts() (p pool) {
	for _, r := range g.rows[:min(len(g.rows), len(p.recent))] {
		for _, h := range r.stored {
			p.share(h.rest)
		}
	}
	return p
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

// chunks yields the parts of a list whose elements are the same.
func chunks[T any](list []T, same func(a, b *T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		first := 0
		for i := range list {
			if i+1 < len(list) && same(&list[i], &list[i+1]) {
				continue
			}
			if !yield(list[first : i+1]) {
				return
			}
			first = i + 1
		}
	}
}
