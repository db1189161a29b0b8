package plan

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A group has both sides of one registry.Group, the claimed and the stored entries, key by
// key. Much of the memory of a bridge is here, so equal texts of both sides share one string.
type group struct {
	exclusive   bool                    // immutable
	claims      []*claim                // by origin
	rows        []keyRow                // by key
	counts      Counts                  // of the stored entries
	endedClaims map[string][]endedClaim // by key, in the order in which they ended
}

// A claim sums up what an origin claims in a group.
type claim struct {
	origin  Origin
	entries int
	offers  bool // one of the entries is an endpoint
}

// A keyRow has what is claimed and what is stored under one key.
type keyRow struct {
	key    string
	wants  []want      // by origin, then value: the first wins
	stored []storedRow // by value
}

// A want is one claimed entry.
type want struct {
	content // live

	claim *claim
}

// A storedRow is one stored entry.
type storedRow struct {
	content // without a value if it is another owner's

	owner   string // as in registry.Stored.Owner
	version int64
}

// An endedClaim is a claim to a key that ended while the key stored something.
type endedClaim struct {
	origin   Origin
	evidence Evidence
}

// row returns the row of a key; nil if there is none. It is valid until the next change.
func (g *group) row(key string) *keyRow {
	i, found := slices.BinarySearchFunc(g.rows, key, func(r keyRow, key string) int {
		return strings.Compare(r.key, key)
	})
	if !found {
		return nil
	}
	return &g.rows[i]
}

// A cursor visits the rows of a group in key order, and adds missing ones.
type cursor struct {
	group     *group
	next      int           // the index of the next row to visit
	added     []keyRow      // the missing rows, until end
	onSkipped func(*keyRow) // called with each row that row does not return
}

// row returns the row of a key, which must be after all keys before. It is valid until the
// next call.
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

// end skips the remaining rows, and adds the missing ones to the group.
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

// claimIndex returns the index of the claim of an origin, or where it would be.
func (g *group) claimIndex(origin Origin) (index int, found bool) {
	return slices.BinarySearchFunc(g.claims, origin, func(c *claim, o Origin) int { return c.origin.Compare(o) })
}

// entriesOf returns how many entries an origin claims.
func (g *group) entriesOf(origin Origin) int {
	if i, ok := g.claimIndex(origin); ok {
		return g.claims[i].entries
	}
	return 0
}

// replaceClaim replaces the claim of an origin by entries, in order and without duplicates.
// It reports whether that changed the claim.
func (g *group) replaceClaim(origin Origin, evidence Evidence, entries []registry.Entry) (changed bool) {
	at, ok := g.claimIndex(origin)
	if !ok {
		g.claims = slices.Insert(g.claims, at, &claim{origin: origin})
	}
	c, texts := g.claims[at], g.recentTexts()
	rows := cursor{group: g, onSkipped: func(r *keyRow) {
		if r.replaceWants(c, nil, &texts) {
			g.recordEnd(r.key, endedClaim{origin, evidence})
			changed = true
		}
	}}
	for same := range chunks(entries, func(a, b *registry.Entry) bool { return a.Key == b.Key }) {
		if rows.row(same[0].Key).replaceWants(c, same, &texts) {
			changed = true
		}
	}
	rows.end()
	c.entries = len(entries)
	c.offers = slices.ContainsFunc(entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) })
	if c.entries == 0 {
		g.claims = slices.Delete(g.claims, at, at+1)
	}
	if changed && len(g.endedClaims) > 0 {
		for _, e := range entries {
			delete(g.endedClaims, e.Key)
		}
	}
	return changed
}

// replaceWants replaces the wants of a claim. It reports whether that changed them.
func (r *keyRow) replaceWants(c *claim, entries []registry.Entry, texts *textPool) bool {
	from, to := r.wantsRange(c)
	isSame := func(w want, e registry.Entry) bool { return w.hasValue(e.Key, e.Value) }
	if slices.EqualFunc(r.wants[from:to], entries, isSame) {
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

// wantsRange returns the indexes of the wants of a claim, or where they would be.
func (r *keyRow) wantsRange(c *claim) (from, to int) {
	for from < len(r.wants) && r.wants[from].claim != c && r.wants[from].claim.origin.Compare(c.origin) < 0 {
		from++
	}
	for to = from; to < len(r.wants) && r.wants[to].claim == c; {
		to++
	}
	return from, to
}

// recordEnd records that a claim to a key ended.
func (g *group) recordEnd(key string, r endedClaim) {
	if g.endedClaims == nil {
		g.endedClaims = make(map[string][]endedClaim, 1)
	}
	others := slices.DeleteFunc(g.endedClaims[key], func(o endedClaim) bool { return o.origin == r.origin })
	g.endedClaims[key] = append(others, r)
}

// active returns the only claim that counts in an exclusive group: the first one that has
// endpoints, so that a service without endpoints does not displace another. It is nil if all
// claims count.
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

// winningOrigin returns the origin of the claim that wins the key; zero if it is unclaimed.
func (r *keyRow) winningOrigin(active *claim) Origin {
	if wants := r.desired(active); len(wants) > 0 {
		return wants[0].claim.origin
	}
	return Origin{}
}

// observe replaces the stored entries. It reports whether our entries differ from before,
// and the keys that no longer store one.
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

// observeStored replaces the stored entries of a key. It reports whether our entries
// differ from before.
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
	isSame := func(a, b storedRow) bool { return a.content == b.content }
	return !slices.EqualFunc(ownedBy(before, owner), ownedBy(r.stored, owner), isSame)
}

// updateVersions updates the versions of the stored entries if nothing else changed, as in
// most reads. It reports whether it did.
func (r *keyRow) updateVersions(owner string, list []registry.Stored) bool {
	same := func(a storedRow, b registry.Stored) bool {
		return a.owner == b.Owner && a.live == b.Live && a.leaving == (b.Leaving && a.owner != owner) &&
			(a.owner != owner || a.hasValue(b.Key, b.Value))
	}
	if !slices.EqualFunc(r.stored, list, same) {
		return false
	}
	for i, h := range list {
		r.stored[i].version = h.Version
	}
	return true
}

// applyChange records that a change was written. It returns the origins of the entries of
// Put.
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

// addStored adds an entry to the stored ones.
func (r *keyRow) addStored(h storedRow) {
	r.stored = append(r.stored, h)
	slices.SortStableFunc(r.stored, func(a, b storedRow) int { return a.compare(r.key, b.content) })
}

// remove removes one of our entries from the stored ones.
func (g *group) remove(owner string, r *keyRow, value string) {
	i := slices.IndexFunc(r.stored, func(h storedRow) bool { return h.owner == owner && h.hasValue(r.key, value) })
	if i >= 0 {
		r.stored = slices.Delete(r.stored, i, i+1)
		g.counts.Owned--
	}
}

// addToCounts adds the stored entries of a key to the counts, or subtracts them.
func (g *group) addToCounts(owner string, r *keyRow, sign int) {
	for _, h := range r.stored {
		if h.owner == owner {
			g.counts.Owned += sign
		} else {
			g.counts.Foreign += sign
		}
	}
}

// prune drops the rows in which nothing is claimed or stored, and the ended claims to keys
// that store nothing.
func (g *group) prune() {
	maps.DeleteFunc(g.endedClaims, func(key string, _ []endedClaim) bool {
		r := g.row(key)
		return r == nil || len(r.stored) == 0
	})
	g.rows = slices.DeleteFunc(g.rows, func(r keyRow) bool { return len(r.wants)+len(r.stored) == 0 })
}

// indexOfOwner returns the index of the first entry of an owner; negative if it has none.
func indexOfOwner(list []storedRow, owner string) int {
	return slices.IndexFunc(list, func(h storedRow) bool { return h.owner == owner })
}

// ownedBy returns the entries of an owner. The caller must not change the list.
func ownedBy(list []storedRow, owner string) []storedRow {
	isOther := func(h storedRow) bool { return h.owner != owner }
	if !slices.ContainsFunc(list, isOther) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), isOther)
}

// loseSession records that our entries are no longer live. It reports whether there are
// any.
func (g *group) loseSession(owner string) bool {
	for _, r := range g.rows {
		for i, h := range r.stored {
			r.stored[i].live = h.live && h.owner != owner
		}
	}
	return g.counts.Owned > 0
}

// A content is the value of an entry under a known key, and its state. Values are long, and
// often begin with their key and continue like the others of their group. So only the part
// after the key is stored, in one string for all equal ones. Contents are comparable: those
// under one key are == if their values and states are equal.
type content struct {
	rest    string // of the value
	fromKey int32  // how many bytes at the beginning of the value are as in the key
	live    bool   // of this session
	leaving bool   // of another owner, which is about to delete the entry
}

// content returns a value under the key as live content, with strings that the row already
// has if possible.
func (r *keyRow) content(value string) content {
	for _, w := range r.wants {
		if w.hasValue(r.key, value) {
			return w.content
		}
	}
	for _, h := range r.stored {
		if h.hasValue(r.key, value) {
			return content{rest: h.rest, fromKey: h.fromKey, live: true}
		}
	}
	from := 0
	if strings.HasPrefix(value, r.key) {
		from = len(r.key)
	}
	for from < min(len(r.key), len(value)) && r.key[from] == value[from] {
		from++
	}
	return content{rest: value[from:], fromKey: int32(from), live: true} //nolint:gosec // keys are shorter
}

// value returns the value of an entry with the given key.
func (c content) value(key string) string { return key[:c.fromKey] + c.rest }

// hasValue reports whether an entry with the given key has the value.
func (c content) hasValue(key, value string) bool {
	from := int(c.fromKey)
	return len(value) == from+len(c.rest) && value[:from] == key[:from] && value[from:] == c.rest
}

// compare orders values under one key.
func (c content) compare(key string, o content) int {
	if c.fromKey == o.fromKey {
		return strings.Compare(c.rest, o.rest)
	}
	return strings.Compare(c.value(key), o.value(key))
}

// A textPool returns one string for equal ones that follow each other closely. It remembers
// only a few, because the strings of a group with thousands of entries may all differ.
type textPool struct {
	recent [8]string
	next   int
}

// recentTexts returns a pool with texts of the first stored entries.
func (g *group) recentTexts() (p textPool) {
	for _, r := range g.rows[:min(len(g.rows), len(p.recent))] {
		for _, h := range r.stored {
			p.share(h.rest)
		}
	}
	return p
}

// share returns a string that equals s, a remembered one if possible.
func (p *textPool) share(s string) string {
	for _, r := range p.recent {
		if r == s {
			return r
		}
	}
	p.recent[p.next%len(p.recent)] = s
	p.next++
	return s
}

// chunks yields the runs of a list whose elements are the same.
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
