package plan_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// FuzzPlanner checks the invariants: an applied change leaves nothing to do, entries of others
// are never touched, the same facts in any order give the same change, and the counts are
// right.
func FuzzPlanner(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := &world{
			r: rand.New(rand.NewPCG(seed, 0)), latest: map[string]fact{}, stored: map[registry.Group][]registry.Stored{},
		}
		p, q := plan.New("me"), plan.New("me")
		for range 40 {
			w.happen()(p)
		}
		for _, f := range w.latest {
			f(q)
		}
		if p.Counts() != q.Counts() || p.Counts() != w.counts() {
			t.Fatalf("counts %+v, in another order %+v, want %+v", p.Counts(), q.Counts(), w.counts())
		}
		for g := range w.groups() {
			w.check(t, p, q, g)
		}
		if p.Counts() != w.counts() {
			t.Fatalf("counts after all changes %+v, want %+v", p.Counts(), w.counts())
		}
	})
}

type fact func(*plan.Planner)

type world struct {
	r      *rand.Rand
	latest map[string]fact // what counts of all that happened
	stored map[registry.Group][]registry.Stored
}

func (*world) groups() iter.Seq[registry.Group] {
	return slices.Values([]registry.Group{group("g0"), group("g1"), {Kind: "x", Name: "g2", Exclusive: true}})
}

func (w *world) group() registry.Group { return slices.Collect(w.groups())[w.r.IntN(3)] }

// happen returns a random event.
func (w *world) happen() fact {
	if w.r.IntN(3) == 0 {
		return w.observation()
	}
	origin := from(w.r.IntN(2), fmt.Sprint("s", w.r.IntN(3)))
	how := plan.Evidence(w.r.IntN(2))
	var entries []registry.Entry
	for range w.r.IntN(5) {
		entries = append(entries, registry.Entry{Group: w.group(), Key: strconv.Itoa(w.r.IntN(4)), Value: strconv.Itoa(w.r.IntN(2))})
	}
	f := func(p *plan.Planner) { p.Claim(origin, how, entries) }
	w.latest[fmt.Sprint(origin)] = f
	return f
}

func (w *world) observation() fact {
	g := w.group()
	var list []registry.Stored
	for k := range w.r.IntN(6) {
		e := registry.Entry{Group: g, Key: strconv.Itoa(k % 4), Value: strconv.Itoa(k / 4)}
		list = append(list, registry.Stored{Entry: e, Owner: []string{"me", "other", ""}[w.r.IntN(3)], Live: w.r.IntN(4) > 0})
	}
	w.stored[g] = list
	f := func(p *plan.Planner) { p.Observe(g, list) }
	w.latest[g.String()] = f
	return f
}

func (w *world) counts() (c plan.Counts) {
	for _, list := range w.stored {
		for _, h := range list {
			if h.Owner == "me" {
				c.Owned++
			} else {
				c.Foreign++
			}
		}
	}
	return c
}

// foreign reports whether a key is another's: any foreign entry has it without
// ours, and next to ours one without an owner, for "" comes before "me".
func (w *world) foreign(g registry.Group, key string) bool {
	by := make(map[string]bool)
	for _, h := range w.stored[g] {
		if h.Key == key {
			by[h.Owner] = true
		}
	}
	return by[""] || by["other"] && !by["me"]
}

func (w *world) check(t *testing.T, p, q *plan.Planner, g registry.Group) {
	t.Helper()
	c, pc := p.Change(g)
	d, qc := q.Change(g)
	if written(c) != written(d) || !slices.Equal(c.Want, d.Want) || !slices.Equal(pc, qc) {
		t.Fatalf("%s depends on the order:\n%+v\n%+v", g, c, d)
	}
	for _, put := range c.Put {
		if w.foreign(g, put.New.Key) || put.Old != nil && put.Old.Owner != "me" {
			t.Fatalf("%+v would touch an entry of another", put)
		}
	}
	for _, h := range c.Delete {
		if h.Owner != "me" {
			t.Fatalf("%+v is not ours", h)
		}
	}
	p.Applied(c)
	w.apply(c)
	if again, _ := p.Change(g); !again.Empty() {
		t.Fatalf("%s: applied %+v, then %+v", g, c, again)
	}
	if n := len(orphans(p, g)); n != 0 {
		t.Fatalf("%s: %d orphans after all changes", g, n)
	}
	if q.Applied(d.Keep(func(registry.Stored) bool { return false })); len(c.Delete) > 0 {
		left, _ := q.Change(g)
		if len(left.Put) > 0 || !slices.Equal(left.Delete, c.Delete) {
			t.Fatalf("%s: the kept entries are %+v, want %+v", g, left, c.Delete)
		}
	}
}

// apply applies a change to the stored entries.
func (w *world) apply(c registry.Change) {
	left := slices.DeleteFunc(slices.Clone(w.stored[c.Group]), func(h registry.Stored) bool { return h.Owner == "me" })
	for _, e := range c.Want {
		left = append(left, registry.Stored{Entry: e, Owner: "me", Live: true})
	}
	w.stored[c.Group] = left
}
