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
	Owner      string // whose entry holds the key, if it is not ours; may be empty
	OtherKey   string // the key of that entry, where it is another
	Rival      Origin // who claims the same, where RivalClaim is set
	RivalClaim bool   // the entry that holds the key is claimed by another service of ours
	Drained    bool   // nothing holds it: a provider deregistered, see Planner.Drained
}

// A Row is what is known of one key of ours in a group: one that is claimed, or an
// orphan, which the target holds and nobody claims.
type Row struct {
	Key      string
	Claimed  bool
	Stored   bool     // by the target; of one that is claimed also another's entry to which it gives way
	Origin   Origin   // whose claim it is, the first of several; of an orphan who is known to have claimed it last
	Evidence Evidence // that the claims to an orphan ended: the weakest of them
	Value    string   // of an orphan without an origin
}

// Change returns what has to be written to a group, and the claims in it that
// cannot be honoured, both in key order. A foreign entry is never touched: it
// wins its key. Ours under that key goes, unless the other has to yield.
func (p *Planner) Change(id registry.Group) (registry.Change, []Conflict) {
	d := p.diff(id)
	d.change.Want = make([]registry.Entry, 0, len(d.group.rows))
	d.reportRefused()
	for i := range d.group.rows {
		d.addKey(&d.group.rows[i])
	}
	return d.change, d.conflicts
}

// Rows yields the keys of a group that are ours, in order. Of an exclusive group
// claimed keys that are not held yet are another service's, and left out.
func (p *Planner) Rows(id registry.Group) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		d := p.diff(id)
		for i := range d.group.rows {
			if row, ok := d.rowOf(&d.group.rows[i]); ok && !yield(row) {
				return
			}
		}
	}
}

// rowOf returns what is known of a key; false if it is not ours.
func (d *diff) rowOf(r *keyRow) (Row, bool) {
	wants := r.desired(d.active)
	if len(wants) == 0 {
		return d.orphanOf(r)
	}
	isStored := len(r.stored) > 0
	if !isStored && len(d.rivals) > 0 {
		isStored = len(d.rivalsElsewhere(r.key, wants)) > 0
	}
	return Row{Key: r.key, Claimed: true, Stored: isStored, Origin: wants[0].claim.origin}, len(r.stored) > 0 || !d.group.exclusive
}

func (d *diff) orphanOf(r *keyRow) (Row, bool) {
	i := indexOfOwner(r.stored, d.owner)
	if i < 0 {
		return Row{}, false
	}
	row := Row{Key: r.key, Stored: true}
	for _, end := range d.group.released[r.key] {
		row.Origin, row.Evidence = end.origin, max(row.Evidence, end.evidence)
	}
	if row.Origin.IsZero() {
		row.Value = r.stored[i].value(r.key)
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

// Taken reports whether another owner's entry that stays holds a key.
func (p *Planner) Taken(id registry.Group, key string) bool {
	r := p.lookup(id).row(key)
	return r != nil && slices.ContainsFunc(r.stored, func(h storedRow) bool { return h.owner != p.owner && !h.leaving })
}

// Winner returns whose claim to a key is honoured, unless a foreign entry holds
// it.
func (p *Planner) Winner(id registry.Group, key string) Origin {
	g := p.lookup(id)
	if r := g.row(key); r != nil {
		return r.winningOrigin(g.active())
	}
	return Origin{}
}

// A diff compares both sides of a group key by key.
type diff struct {
	owner     string
	yields    func(Origin, registry.Entry) bool
	drained   func(registry.Group, string) bool
	group     *group
	active    *claim             // see group.active
	rivals    map[string][]rival // entries of others, by what is behind :// in their keys; nil where no claim yields
	change    registry.Change
	conflicts []Conflict
}

// A rival is an entry of another owner.
type rival struct{ key, owner string }

func (p *Planner) diff(id registry.Group) diff {
	g := p.lookup(id)
	d := diff{owner: p.owner, yields: p.Yields, drained: p.Drained, group: g, active: g.active(), change: registry.Change{Group: id}}
	if p.Yields == nil || g.counts.Foreign == 0 {
		return d
	}
	d.rivals = make(map[string][]rival)
	for _, r := range g.rows {
		_, at, ok := strings.Cut(r.key, "://")
		for _, h := range r.stored {
			if ok && h.owner != p.owner && !h.leaving {
				d.rivals[at] = append(d.rivals[at], rival{r.key, h.owner})
			}
		}
	}
	return d
}

// rivalsElsewhere returns the entries of others under other keys to which all who claim a
// key yield.
func (d *diff) rivalsElsewhere(key string, wants []want) []rival {
	if len(d.rivals) == 0 {
		return nil
	}
	_, at, _ := strings.Cut(key, "://")
	list := slices.DeleteFunc(slices.Clone(d.rivals[at]), func(o rival) bool { return o.key == key })
	if len(list) == 0 || slices.ContainsFunc(wants, func(w want) bool { return !d.yields(w.claim.origin, d.toEntry(key, w.content)) }) {
		return nil
	}
	return list
}

// reportRefused reports the claims that an exclusive group refuses whole.
func (d *diff) reportRefused() {
	if d.active == nil {
		return
	}
	for _, c := range d.group.claims {
		if c == d.active {
			continue
		}
		for _, r := range d.group.rows {
			for range r.desired(c) {
				d.reportRival(r.key, c.origin, d.active.origin)
			}
		}
	}
}

// addKey adds what is to be done about one key.
func (d *diff) addKey(r *keyRow) {
	wants := r.desired(d.active)
	if len(wants) == 0 {
		d.removeOurs(r.key, r.stored)
		return
	}
	if d.group.counts.Foreign > 0 {
		if foreign := d.foreignWinner(r, wants); foreign != nil {
			d.reportForeign(r.key, wants, *foreign)
			d.removeOurs(r.key, r.stored)
			return
		}
	}
	if d.drained != nil && indexOfOwner(r.stored, d.owner) < 0 && d.drained(d.change.Group, r.key) {
		d.reportDrained(r.key, wants)
		return
	}
	d.reportRivals(r.key, wants)
	d.reconcile(r, wants[0].content)
}

// foreignWinner returns the foreign entry that wins the key over ours, if any
// does. Any wins that is there before ours, unless its owner is about to delete it.
// Where a target holds both, one without a mark wins, and of two owners the one whose
// name comes first: were each to yield to the other, the key would be nobody's.
func (d *diff) foreignWinner(r *keyRow, wants []want) *rival {
	isBoth := indexOfOwner(r.stored, d.owner) >= 0
	wins := func(owner string) bool { return owner != d.owner && (!isBoth || owner < d.owner) }
	for _, h := range r.stored {
		if !h.leaving && wins(h.owner) {
			return &rival{r.key, h.owner}
		}
	}
	for _, o := range d.rivalsElsewhere(r.key, wants) {
		if wins(o.owner) {
			return &o
		}
	}
	return nil
}

// reportForeign reports the claims to a key that lose to a foreign entry, once for
// each service.
func (d *diff) reportForeign(key string, wants []want, foreign rival) {
	if foreign.key == key {
		foreign.key = ""
	}
	for i, w := range wants {
		if i == 0 || wants[i-1].claim != w.claim {
			d.conflicts = append(d.conflicts, Conflict{
				Group: d.change.Group, Key: key, Origin: w.claim.origin, Owner: foreign.owner, OtherKey: foreign.key,
			})
		}
	}
}

// reportDrained reports the claims to a key whose provider deregistered, once for
// each service.
func (d *diff) reportDrained(key string, wants []want) {
	for i, w := range wants {
		if i == 0 || wants[i-1].claim != w.claim {
			d.conflicts = append(d.conflicts, Conflict{Group: d.change.Group, Key: key, Origin: w.claim.origin, Drained: true})
		}
	}
}

// reportRivals reports the claims to a key that lose to one of another bridge of ours. A
// head is of the group: services that share it lose nothing by another's head. Two services
// of one bridge that have the same endpoint, as two Services over the same Pods, lose
// nothing either: it is offered, and by the other service once the first is gone.
func (d *diff) reportRivals(key string, wants []want) {
	for _, w := range wants[1:] {
		loser, first := w.claim.origin, wants[0].claim.origin
		isShared := loser.Bridge == first.Bridge && loser != first
		if w.content != wants[0].content && key != registry.HeadKey && !isShared {
			d.reportRival(key, loser, first)
		}
	}
}

func (d *diff) reportRival(key string, loser, winner Origin) {
	d.conflicts = append(d.conflicts, Conflict{Group: d.change.Group, Key: key, Origin: loser, Rival: winner, RivalClaim: true})
}

// reconcile makes one of what is held, all of it ours, into what is desired.
func (d *diff) reconcile(r *keyRow, want content) {
	w := registry.Write{New: d.toEntry(r.key, want)}
	d.change.Want = append(d.change.Want, w.New)
	if len(r.stored) == 1 && r.stored[0].content == want { // as nearly always
		return
	}
	if list := ownedBy(r.stored, d.owner); len(list) > 0 {
		i := closest(list, want)
		d.removeOurs(r.key, list[:i])
		d.removeOurs(r.key, list[i+1:])
		if list[i].content == want {
			return
		}
		old := d.toStored(r.key, list[i])
		w.Old = &old
	} else if i := slices.IndexFunc(r.stored, func(h storedRow) bool { return h.leaving }); i >= 0 {
		w.Old = &registry.Stored{Entry: w.New, Owner: r.stored[i].owner, Version: r.stored[i].version, Live: true, Leaving: true}
	}
	d.change.Put = append(d.change.Put, w)
}

// closest returns which of several under one key stays: one that is as desired
// and, if there is a choice, live.
func closest(list []storedRow, want content) (best int) {
	isSame := func(h storedRow) bool { return h.rest == want.rest && h.from == want.from }
	for i, h := range list {
		if isSame(h) && (h.live || !isSame(list[best])) {
			best = i
		}
	}
	return best
}

func (d *diff) removeOurs(key string, list []storedRow) {
	for _, h := range list {
		if h.owner == d.owner {
			d.change.Delete = append(d.change.Delete, d.toStored(key, h))
		}
	}
}

func (d *diff) toEntry(key string, c content) registry.Entry {
	return registry.Entry{Group: d.change.Group, Key: key, Value: c.value(key)}
}

func (d *diff) toStored(key string, h storedRow) registry.Stored {
	return registry.Stored{Entry: d.toEntry(key, h.content), Owner: h.owner, Version: h.version, Live: h.live}
}

// Place returns what keys of one address have in common, whatever their protocols: what is
// behind ://, or the whole key.
func Place(key string) string {
	if _, at, ok := strings.Cut(key, "://"); ok {
		return at
	}
	return key
}

// SelfDeregistered returns the places of a group, as it was last observed, from which an entry without
// an owner went until a reading, although they are claimed and hold nothing of ours.
func (p *Planner) SelfDeregistered(id registry.Group, list []registry.Stored) (places []string) {
	g := p.lookup(id)
	if g.counts.Foreign == 0 {
		return nil
	}
	stays := make(map[string]bool)
	for _, h := range list {
		stays[Place(h.Key)] = stays[Place(h.Key)] || h.Owner == "" || h.Owner == p.owner
	}
	for _, r := range g.rows {
		at := Place(r.key)
		if registry.IsEndpoint(r.key) && !stays[at] && indexOfOwner(r.stored, "") >= 0 && p.Claims(id, at) {
			places = append(places, at)
		}
	}
	return places
}

// Claims reports whether anybody claims an entry of a place.
func (p *Planner) Claims(id registry.Group, place string) bool {
	return slices.ContainsFunc(p.lookup(id).rows, func(r keyRow) bool { return len(r.wants) > 0 && Place(r.key) == place })
}
