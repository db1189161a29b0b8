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

// A Row is what is known of one key of ours in a group: one that is claimed, or an
// orphan, which the target holds and nobody claims.
type Row struct {
	Key      string
	Claimed  bool
	Held     bool     // by the target; of one that is claimed also another's entry to which it gives way
	Origin   Origin   // whose claim it is, the first of several; of an orphan who is known to have claimed it last
	Evidence Evidence // that the claims to an orphan ended: the weakest of them
	Value    string   // of an orphan without an origin
}

// Change returns what has to be written to a group, and the claims in it that
// cannot be honoured, both in key order. A foreign entry is never touched: it
// wins its key. Ours under that key goes, unless the other has to yield.
func (p *Planner) Change(id registry.Group) (registry.Change, []Conflict) {
	d := p.diff(id)
	if len(d.group.claims) > 0 {
		d.change.Want = make([]registry.Entry, 0, len(d.group.claims[0].entries))
	}
	d.reportRefused()
	for r := range d.group.runs() {
		d.add(r)
	}
	return d.change, d.conflicts
}

// Rows yields the keys of a group that are ours, in order. Of an exclusive group
// claimed keys that are not held yet are another service's, and left out.
func (p *Planner) Rows(id registry.Group) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		d := p.diff(id)
		for r := range d.group.runs() {
			if row, ok := d.row(r); ok && !yield(row) {
				return
			}
		}
	}
}

// row returns what is known of a key; false if it is not ours.
func (d *diff) row(r run) (Row, bool) {
	switch {
	case len(r.want) == 0:
		return d.orphan(r)
	case d.group.exclusive && len(r.held) == 0:
		return Row{}, false
	}
	return Row{Key: r.key, Claimed: true, Held: len(d.rivals(r)) > 0, Origin: r.want[0].origin}, true
}

func (d *diff) orphan(r run) (Row, bool) {
	i := slices.IndexFunc(r.held, func(h held) bool { return h.owner == d.owner })
	if i < 0 {
		return Row{}, false
	}
	row := Row{Key: r.key, Held: true}
	for _, end := range d.group.released[r.key] {
		row.Origin, row.Evidence = end.origin, max(row.Evidence, end.evidence)
	}
	if row.Origin.IsZero() {
		row.Value = r.held[i].value()
	}
	return row, true
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
func (p *Planner) Winner(id registry.Group, key string) Origin {
	for _, c := range p.lookup(id).active() {
		if _, ok := find(c.entries, key); ok {
			return c.origin
		}
	}
	return Origin{}
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

// A run is all that is desired and held under one key, the winner first.
type run struct {
	key  string
	want []desired
	held []held
}

type desired struct {
	pair
	origin Origin
}

// runs yields the keys of a group in order.
func (g *group) runs() iter.Seq[run] {
	want := g.desired()
	return func(yield func(run) bool) {
		for w, h := want, g.held; len(w)+len(h) > 0; {
			i, j, key := 0, 0, firstKey(w, h)
			for i < len(w) && w[i].key == key {
				i++
			}
			for j < len(h) && h[j].key == key {
				j++
			}
			if !yield(run{key, w[:i], h[:j]}) {
				return
			}
			w, h = w[i:], h[j:]
		}
	}
}

func firstKey(w []desired, h []held) string {
	if len(h) == 0 || len(w) > 0 && w[0].key < h[0].key {
		return w[0].key
	}
	return h[0].key
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

// A diff compares both sides of a group key by key.
type diff struct {
	owner     string
	yields    func(Origin, registry.Entry) bool
	group     *group
	others    map[string][]held // entries of others, by what is behind :// in their keys; nil where no claim yields
	change    registry.Change
	conflicts []Conflict
}

func (p *Planner) diff(id registry.Group) diff {
	d := diff{owner: p.owner, yields: p.Yields, group: p.lookup(id), change: registry.Change{Group: id}}
	if p.Yields == nil {
		return d
	}
	d.others = make(map[string][]held)
	for _, h := range d.group.held {
		if _, at, ok := strings.Cut(h.key, "://"); ok && h.owner != p.owner {
			d.others[at] = append(d.others[at], h)
		}
	}
	return d
}

// rivals returns what is held under a key, and what else those who claim it
// yield to.
func (d *diff) rivals(r run) []held {
	if len(d.others) == 0 {
		return r.held
	}
	_, at, _ := strings.Cut(r.key, "://")
	others := d.others[at]
	if len(r.want) == 0 || !slices.ContainsFunc(others, func(h held) bool { return h.key != r.key }) {
		return r.held
	}
	for _, w := range r.want {
		if !d.yields(w.origin, registry.Entry{Group: d.change.Group, Key: w.key, Value: w.value()}) {
			return r.held
		}
	}
	return slices.Concat(r.held, others)
}

// reportRefused reports the claims that an exclusive group refuses whole.
func (d *diff) reportRefused() {
	g := d.group
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

// add adds what is to be done about one key.
func (d *diff) add(r run) {
	foreign := d.foreignWinner(d.rivals(r))
	switch {
	case len(r.want) == 0:
		d.removeOurs(r.held)
	case foreign != nil:
		d.reportForeign(r, foreign)
		d.removeOurs(r.held)
	default:
		d.reportRivals(r)
		d.reconcile(r)
	}
}

// foreignWinner returns the foreign entry that wins the key over ours, if any
// does. Any wins that is there before ours. Where a target holds both, one
// without a mark wins, and of two owners the one whose name comes first: were
// each to yield to the other, the key would be nobody's.
func (d *diff) foreignWinner(list []held) *held {
	both := slices.ContainsFunc(list, func(h held) bool { return h.owner == d.owner })
	for i, h := range list {
		if h.owner != d.owner && (!both || h.owner < d.owner) {
			return &list[i]
		}
	}
	return nil
}

// reportForeign reports the claims to a key that lose to a foreign entry, once for
// each service.
func (d *diff) reportForeign(r run, foreign *held) {
	other := foreign.key
	if other == r.key {
		other = ""
	}
	for i, w := range r.want {
		if i == 0 || r.want[i-1].origin != w.origin {
			d.conflicts = append(d.conflicts, Conflict{Group: d.change.Group, Key: r.key, Origin: w.origin, Owner: foreign.owner, OtherKey: other})
		}
	}
}

// reportRivals reports the claims to a key that lose to another of ours. A head
// is of the group: services that share it lose nothing by another's head.
func (d *diff) reportRivals(r run) {
	for _, w := range r.want[1:] {
		if first := r.want[0]; w.pair != first.pair && r.key != registry.HeadKey {
			d.conflicts = append(d.conflicts, Conflict{Group: d.change.Group, Key: r.key, Origin: w.origin, Rival: first.origin, RivalClaim: true})
		}
	}
}

// reconcile makes one of what is held, all of it ours, into what is desired.
func (d *diff) reconcile(r run) {
	want, list := r.want[0].pair, ownedBy(r.held, d.owner)
	w := registry.Write{New: registry.Entry{Group: d.change.Group, Key: want.key, Value: want.value()}}
	d.change.Want = append(d.change.Want, w.New)
	if len(list) > 0 {
		i := closest(list, want)
		d.removeOurs(list[:i])
		d.removeOurs(list[i+1:])
		if list[i].pair == want && list[i].live {
			return
		}
		old := d.export(list[i])
		w.Old = &old
	}
	d.change.Put = append(d.change.Put, w)
}

// closest returns which of several under one key stays: one that is as desired
// and, if there is a choice, live.
func closest(list []held, want pair) (best int) {
	for i, h := range list {
		if h.pair == want && (h.live || list[best].pair != want) {
			best = i
		}
	}
	return best
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
