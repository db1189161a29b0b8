package plan

import (
	"iter"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Conflict is a claim that cannot be honoured. There are three reasons: another owner's
// entry has the key, another of our claims has it (RivalClaim), or its place is Drained.
type Conflict struct {
	Group  registry.Group
	Key    string
	Origin Origin // of the claim

	Owner    string // of the entry that has the key; empty: it has no owner
	OtherKey string // the key of that entry, if it is another one

	RivalClaim bool
	Rival      Origin // of the claim that has the key

	Drained bool // see Planner.Drained
}

// A Row is one of our keys in a group: a claimed key, or an orphan, which is stored and
// unclaimed.
type Row struct {
	Key     string
	Claimed bool

	// Stored says that the target stores the entry or, if Claimed, an entry of another
	// owner that wins over it.
	Stored bool

	Origin   Origin   // of the first claim; of an orphan, its last known claimant
	Evidence Evidence // of an orphan: the weakest for the end of its claims
	Value    string   // of an orphan without an Origin
}

// Change returns what has to be written to a group, and the claims in it that cannot be
// honoured, both in key order. A foreign entry is never touched. It wins its key, and our
// entry under that key is deleted, unless the foreign one has to yield.
func (p *Planner) Change(id registry.Group) (registry.Change, []Conflict) {
	d := p.diff(id)
	d.change.Want = make([]registry.Entry, 0, len(d.group.rows))
	d.reportRefused()
	for i := range d.group.rows {
		d.addKey(&d.group.rows[i])
	}
	return d.change, d.conflicts
}

// Rows yields our keys in a group, in order. The claimed keys of an exclusive group
// that are not stored yet are left out: they may belong to another service than the stored
// ones.
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

// rowOf returns the Row of a key; false if Rows leaves it out.
func (d *diff) rowOf(r *keyRow) (Row, bool) {
	wants := r.desired(d.active)
	if len(wants) == 0 {
		return d.orphanOf(r)
	}
	isStored := len(r.stored) > 0
	if !isStored && len(d.rivals) > 0 {
		isStored = len(d.rivalsElsewhere(r.key, wants)) > 0
	}
	row := Row{Key: r.key, Claimed: true, Stored: isStored, Origin: wants[0].claim.origin}
	return row, len(r.stored) > 0 || !d.group.exclusive
}

// orphanOf returns the Row of an unclaimed key; false if it stores none of our entries.
func (d *diff) orphanOf(r *keyRow) (Row, bool) {
	i := indexOfOwner(r.stored, d.owner)
	if i < 0 {
		return Row{}, false
	}
	row := Row{Key: r.key, Stored: true}
	for _, end := range d.group.endedClaims[r.key] {
		row.Origin, row.Evidence = end.origin, max(row.Evidence, end.evidence)
	}
	if row.Origin.IsZero() {
		row.Value = r.stored[i].value(r.key)
	}
	return row, true
}

// FormerClaimants returns the known former claimants of an orphan, in the order in which
// their claims ended.
func (p *Planner) FormerClaimants(id registry.Group, key string) (all []Origin) {
	for _, r := range p.lookup(id).endedClaims[key] {
		all = append(all, r.origin)
	}
	return all
}

// Taken reports whether another owner has an entry under a key that is not leaving.
func (p *Planner) Taken(id registry.Group, key string) bool {
	r := p.lookup(id).row(key)
	isTaken := func(h storedRow) bool { return h.owner != p.owner && !h.leaving }
	return r != nil && slices.ContainsFunc(r.stored, isTaken)
}

// Winner returns the origin of the claim that wins a key among ours. A foreign entry may
// still win over it.
func (p *Planner) Winner(id registry.Group, key string) Origin {
	g := p.lookup(id)
	if r := g.row(key); r != nil {
		return r.winningOrigin(g.active())
	}
	return Origin{}
}

// A diff compares both sides of a group key by key. These are the states of a key:
//
//	claimed | stored                    | action
//	--------|---------------------------|------------------------------------------------
//	yes     | nothing                   | create, or conflict if the place is drained
//	yes     | ours, as desired and live | none
//	yes     | ours, otherwise           | update; of several, delete all but the closest
//	yes     | another owner's           | conflict
//	yes     | another owner's, leaving  | create over it
//	yes     | ours and another owner's  | conflict and delete ours, if the other one wins;
//	        |                           | else as if ours were alone
//	no      | ours                      | delete: an orphan
//	no      | another owner's           | none
//
// In an exclusive group only the claims of one service count; all others are conflicts. Of
// several claims to a key the first one counts. An entry of another owner at the address of
// the key under another protocol counts as under the key if the claims yield to it.
type diff struct {
	owner   string
	yields  func(Origin, registry.Entry) bool
	drained func(registry.Group, string) bool
	group   *group
	active  *claim             // see group.active
	rivals  map[string][]rival // entries of other owners, by place; nil: no claim yields

	// The result.
	change    registry.Change
	conflicts []Conflict
}

// A rival is an entry of another owner.
type rival struct{ key, owner string }

func (p *Planner) diff(id registry.Group) diff {
	g := p.lookup(id)
	d := diff{
		owner: p.owner, yields: p.Yields, drained: p.Drained,
		group: g, active: g.active(), change: registry.Change{Group: id},
	}
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

// rivalsElsewhere returns the entries of other owners at the place of a key, under other
// keys, if all claims to the key yield to them.
func (d *diff) rivalsElsewhere(key string, wants []want) []rival {
	if len(d.rivals) == 0 {
		return nil
	}
	_, at, _ := strings.Cut(key, "://")
	list := slices.DeleteFunc(slices.Clone(d.rivals[at]), func(o rival) bool { return o.key == key })
	insists := func(w want) bool { return !d.yields(w.claim.origin, d.toEntry(key, w.content)) }
	if len(list) == 0 || slices.ContainsFunc(wants, insists) {
		return nil
	}
	return list
}

// reportRefused reports the claims of the services that an exclusive group refuses.
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

// addKey adds the action for one key to the result; see the table of diff.
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

// foreignWinner returns the foreign entry that wins the key over ours; nil if none does. A
// foreign entry that was there first wins, unless it is leaving. If the target stores both,
// an entry without an owner wins. Of two owners the one whose name comes first wins: if each
// yielded to the other, the key would have no entry.
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

// reportForeign reports the claims to a key that lose to a foreign entry, one for each
// service.
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

// reportRivals reports the claims to a key that lose to a claim of another of our bridges.
//
// Two kinds of claims lose nothing, and are not reported. A head belongs to the group, so
// services that share the group share it. And two services of one bridge with the same
// endpoint, such as two Services over the same Pods, have their endpoint either way.
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
	d.conflicts = append(d.conflicts, Conflict{
		Group: d.change.Group, Key: key, Origin: loser, Rival: winner, RivalClaim: true,
	})
}

// reconcile adds the action for a key that we win: one of its entries becomes the desired
// one, and our other entries are deleted.
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
		h := r.stored[i]
		w.Old = &registry.Stored{Entry: w.New, Owner: h.owner, Version: h.version, Live: true, Leaving: true}
	}
	d.change.Put = append(d.change.Put, w)
}

// closest returns the index of the entry that is kept of several under one key: a desired
// and live one if possible, or else a desired one.
func closest(list []storedRow, want content) (best int) {
	isSame := func(h storedRow) bool { return h.rest == want.rest && h.fromKey == want.fromKey }
	for i, h := range list {
		if isSame(h) && (h.live || !isSame(list[best])) {
			best = i
		}
	}
	return best
}

// removeOurs deletes those of the entries that are ours.
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

// Place returns the part of a key that does not depend on its protocol: the part after ://,
// or the whole key.
func Place(key string) string {
	if _, at, ok := strings.Cut(key, "://"); ok {
		return at
	}
	return key
}

// SelfDeregistered compares the last Observe of a group with a new read. It returns the
// claimed places where providers deregistered: an entry without an owner is missing, and the
// place has none of our entries.
func (p *Planner) SelfDeregistered(id registry.Group, list []registry.Stored) (places []string) {
	g := p.lookup(id)
	if g.counts.Foreign == 0 {
		return nil
	}
	remains := make(map[string]bool)
	for _, h := range list {
		remains[Place(h.Key)] = remains[Place(h.Key)] || h.Owner == "" || h.Owner == p.owner
	}
	for _, r := range g.rows {
		at := Place(r.key)
		if registry.IsEndpoint(r.key) && !remains[at] && indexOfOwner(r.stored, "") >= 0 && p.Claims(id, at) {
			places = append(places, at)
		}
	}
	return places
}

// Claims reports whether an entry of a place is claimed.
func (p *Planner) Claims(id registry.Group, place string) bool {
	return slices.ContainsFunc(p.lookup(id).rows, func(r keyRow) bool { return len(r.wants) > 0 && Place(r.key) == place })
}
