package plan

import (
	"iter"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Conflict is a claim that cannot be honoured.
type Conflict struct {
	Group      registry.Group
	Key        string
	Origin     Origin // whose claim it is
	Owner      string // whose entry is in the way, where it is not ours; may be empty
	OtherKey   string // the key of that entry, where it is another
	Rival      Origin // who claims the same, where RivalClaim is set
	RivalClaim bool   // the entry in the way is claimed by another service of ours
}

// Orphan is a key of ours that the target holds and nobody claims.
type Orphan struct {
	Key      string
	Origin   Origin   // who claimed it last
	Known    bool     // somebody did claim it, so that Origin and Evidence are known
	Evidence Evidence // that its claims ended: the weakest of them
	Value    string   // of what is held; empty where somebody is known to have claimed it
}

// Change returns what has to be written to a group, and the claims in it that
// cannot be honoured, both in key order. A foreign entry is never touched: it
// wins its key. Ours under that key goes, unless the other has to yield.
func (p *Planner) Change(id registry.Group) (registry.Change, []Conflict) {
	c := registry.Change{Group: id}
	g := p.lookup(id)
	if len(g.claims) > 0 {
		c.Want = make([]registry.Entry, 0, len(g.claims[0].entries))
	}
	d := p.diff(g)
	d.change = &c
	d.reportRefused(g)
	for r := range g.rows() {
		d.row(r)
	}
	return c, d.conflicts
}

// Orphans yields the keys of a group that are ours and that nobody claims, in
// order, each once.
func (p *Planner) Orphans(id registry.Group) iter.Seq[Orphan] {
	return func(yield func(Orphan) bool) {
		g := p.lookup(id)
		for r := range g.rows() {
			i := slices.IndexFunc(r.held, func(h held) bool { return h.owner == p.owner })
			if len(r.want) > 0 || i < 0 {
				continue
			}
			o := Orphan{Key: r.key}
			for _, end := range g.released[r.key] {
				o.Origin, o.Known, o.Evidence = end.origin, true, max(o.Evidence, end.evidence)
			}
			if !o.Known {
				o.Value = r.held[i].value()
			}
			if !yield(o) {
				return
			}
		}
	}
}

// A Desire is a key that is claimed in a group.
type Desire struct {
	Key    string
	Origin Origin // whose claim it is, the first of several
	Held   bool   // the group holds it already, or another's entry to which it gives way
}

// Desired yields the keys of a group that are claimed, in order. Of an exclusive
// group those that are not held yet are another service's, and left out.
func (p *Planner) Desired(id registry.Group) iter.Seq[Desire] {
	return func(yield func(Desire) bool) {
		g := p.lookup(id)
		d := p.diff(g)
		for r := range g.rows() {
			if len(r.want) == 0 || g.exclusive && len(r.held) == 0 {
				continue
			}
			if !yield(Desire{r.key, r.want[0].origin, len(d.rivals(id, r)) > 0}) {
				return
			}
		}
	}
}

// FormerClaimants returns everybody who is known to have claimed an orphan, in
// the order in which their claims ended.
func (p *Planner) FormerClaimants(id registry.Group, key string) (all []Origin) {
	for _, r := range p.lookup(id).released[key] {
		all = append(all, r.origin)
	}
	return all
}

// Winner returns whose claim to a key is honoured, unless a foreign entry is
// in the way.
func (p *Planner) Winner(id registry.Group, key string) (Origin, bool) {
	for _, c := range p.lookup(id).active() {
		if _, ok := findKey(c.entries, key); ok {
			return c.origin, true
		}
	}
	return Origin{}, false
}

// active are the claims that count: in an exclusive group only one.
func (g *group) active() []claim {
	if g.exclusive && len(g.claims) > 1 {
		i := g.first()
		return g.claims[i : i+1]
	}
	return g.claims
}

// first returns which claim counts in an exclusive group: the first that has
// endpoints, because a service without any is to keep no other from its place.
func (g *group) first() int { return max(0, slices.IndexFunc(g.claims, claim.offers)) }

// A row is all that is desired and held under one key, the winner first.
type row struct {
	key  string
	want []desired
	held []held
}

type desired struct {
	pair
	origin Origin
}

// rows yields the keys of a group in order.
func (g *group) rows() iter.Seq[row] {
	want := g.desired()
	return func(yield func(row) bool) {
		w, h := want, g.held
		for len(w) > 0 || len(h) > 0 {
			key := firstKey(w, h)
			i, j := 0, 0
			for i < len(w) && w[i].key == key {
				i++
			}
			for j < len(h) && h[j].key == key {
				j++
			}
			if !yield(row{key, w[:i], h[:j]}) {
				return
			}
			w, h = w[i:], h[j:]
		}
	}
}

func firstKey(w []desired, h []held) string {
	switch {
	case len(h) == 0:
		return w[0].key
	case len(w) == 0:
		return h[0].key
	default:
		return min(w[0].key, h[0].key)
	}
}

// desired merges the claims of a group, ordered by key and then by who wins.
func (g *group) desired() []desired {
	n := 0
	for _, c := range g.active() {
		n += len(c.entries)
	}
	want := make([]desired, 0, n)
	for _, c := range g.active() {
		for _, e := range c.entries {
			want = append(want, desired{e, c.origin})
		}
	}
	if len(g.active()) > 1 {
		slices.SortStableFunc(want, func(a, b desired) int { return strings.Compare(a.key, b.key) })
	}
	return want
}

// A diff gathers a change row by row.
type diff struct {
	owner     string
	yields    func(Origin, registry.Entry) bool
	others    map[string][]held // entries of others, by what is behind :// in their keys; nil where no claim yields
	change    *registry.Change
	conflicts []Conflict
}

func (p *Planner) diff(g *group) diff {
	d := diff{owner: p.owner, yields: p.Yields}
	if p.Yields == nil {
		return d
	}
	d.others = make(map[string][]held)
	for _, h := range g.held {
		if _, at, ok := strings.Cut(h.key, "://"); ok && h.owner != p.owner {
			d.others[at] = append(d.others[at], h)
		}
	}
	return d
}

// rivals returns what is held under a key, and what else those who claim it
// yield to.
func (d *diff) rivals(id registry.Group, r row) []held {
	_, at, _ := strings.Cut(r.key, "://")
	others := d.others[at]
	if len(r.want) == 0 || !slices.ContainsFunc(others, func(h held) bool { return h.key != r.key }) {
		return r.held
	}
	for _, w := range r.want {
		if !d.yields(w.origin, registry.Entry{Group: id, Key: w.key, Value: w.value()}) {
			return r.held
		}
	}
	return slices.Concat(r.held, others)
}

// reportRefused reports the claims that an exclusive group refuses whole.
func (d *diff) reportRefused(g *group) {
	if len(g.active()) == len(g.claims) {
		return
	}
	first := g.claims[g.first()].origin
	for _, c := range g.claims {
		if c.origin == first {
			continue
		}
		for _, e := range c.entries {
			d.conflicts = append(d.conflicts, Conflict{Group: d.change.Group, Key: e.key, Origin: c.origin, Rival: first, RivalClaim: true})
		}
	}
}

func (d *diff) row(r row) {
	rivals := d.rivals(d.change.Group, r)
	foreign, yields := d.foreignWinner(rivals)
	switch {
	case len(r.want) == 0:
		d.removeOurs(r.held)
	case yields:
		for i, w := range r.want {
			if i == 0 || r.want[i-1].origin != w.origin {
				c := Conflict{Group: d.change.Group, Key: r.key, Origin: w.origin, Owner: foreign.owner}
				if foreign.key != r.key {
					c.OtherKey = foreign.key
				}
				d.conflicts = append(d.conflicts, c)
			}
		}
		d.removeOurs(r.held)
	default:
		d.reportRivals(r)
		d.reconcile(r.want[0].pair, ownedBy(r.held, d.owner))
	}
}

// foreignWinner returns the foreign entry that wins the key over ours, if any
// does. Any wins that is there before ours. Where a target holds both, one
// without a mark wins, and of two owners the one whose name comes first: were
// each to yield to the other, the key would be nobody's.
func (d *diff) foreignWinner(list []held) (held, bool) {
	both := slices.ContainsFunc(list, func(h held) bool { return h.owner == d.owner })
	i := slices.IndexFunc(list, func(h held) bool { return h.owner != d.owner && (!both || h.owner < d.owner) })
	if i < 0 {
		return held{}, false
	}
	return list[i], true
}

// reportRivals reports the claims to a key that lose to another of ours. A head
// is of the group: services that share it lose nothing by another's head.
func (d *diff) reportRivals(r row) {
	if r.key == registry.HeadKey {
		return
	}
	first := r.want[0]
	for _, w := range r.want[1:] {
		if w.pair != first.pair {
			d.conflicts = append(d.conflicts, Conflict{
				Group: d.change.Group, Key: r.key, Origin: w.origin, Rival: first.origin, RivalClaim: true,
			})
		}
	}
}

// reconcile makes one of what is held, all of it ours, into what is desired.
func (d *diff) reconcile(want pair, list []held) {
	entry := registry.Entry{Group: d.change.Group, Key: want.key, Value: want.value()}
	d.change.Want = append(d.change.Want, entry)
	if len(list) == 0 {
		d.change.Put = append(d.change.Put, registry.Write{New: entry})
		return
	}
	best := 0
	for i, h := range list {
		if h.pair == want && (h.live || list[best].pair != want) {
			best = i
		}
	}
	if h := list[best]; h.pair != want || !h.live {
		old := d.export(h)
		d.change.Put = append(d.change.Put, registry.Write{New: entry, Old: &old})
	}
	d.removeOurs(list[:best])
	d.removeOurs(list[best+1:])
}

func (d *diff) removeOurs(list []held) {
	for _, h := range list {
		if h.owner == d.owner {
			d.change.Delete = append(d.change.Delete, d.export(h))
		}
	}
}

func (d *diff) export(h held) registry.Held {
	return registry.Held{
		Entry: registry.Entry{Group: d.change.Group, Key: h.key, Value: h.value()},
		Owner: h.owner, Version: h.version, Live: h.live,
	}
}
