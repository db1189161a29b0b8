//go:build soak

package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/soaktest"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/memory"
)

// TestInvariants lets anything happen in any order, and checks with an oracle
// what must always hold: nothing of others is touched; nothing is deleted
// that is claimed, or on ignorance, or beyond the guard; never two calls for
// one group nor more than there are workers; and after the last fault heals,
// the target holds what the sources say.
func TestInvariants(t *testing.T) {
	for seed := range soaktest.Seeds(t) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newChaos(t, uint64(seed)).run() })
		})
	}
}

// place is one key of one group.
type place struct {
	group registry.Group
	key   string
}

type chaos struct {
	*story
	r       *rand.Rand
	watched *watched
	guarded bool // the default guard is on
}

// watched checks every call to the target.
type watched struct {
	*memory.Target
	t       *testing.T
	bridges []bridge.Bridge
	workers int

	mu      sync.Mutex
	faults  bool
	guarded bool
	r       *rand.Rand
	busy    map[registry.Group]bool
	last    map[place]claimant           // who claimed it last
	emptied map[registry.Group]time.Time // groups that a write left without an entry of ours
}

type claimant struct {
	bridge  int
	service registry.Name
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{story: newStory(t), r: rand.New(rand.NewPCG(seed, 1)), guarded: seed%2 == 0}
	guard := speed
	if c.guarded {
		guard = with(func(g *bridge.Guard) { g.Confirm = 0 })
	}
	c.bridge("b", guard).bridge("c", guard)
	c.watched = &watched{
		t: t, bridges: c.bridges, workers: c.opts.Workers, r: rand.New(rand.NewPCG(seed, 2)),
		faults: true, guarded: c.guarded, busy: map[registry.Group]bool{}, last: map[place]claimant{},
		emptied: map[registry.Group]time.Time{},
	}
	c.hooks.Delay = time.Duration(seed%3) * 300 * ms
	c.hooks.Fail = c.watched.maybe
	c.hooks.Lose = c.watched.maybe
	c.target = memory.New(c.hooks)
	c.watched.Target = c.target
	return c
}

// maybe fails some calls while there are faults.
func (w *watched) maybe(memory.Op, registry.Group) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.faults && w.r.IntN(4) == 0 {
		return errDown
	}
	return nil
}

func (w *watched) begin(g registry.Group) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[g] {
		w.t.Errorf("A49 two calls for %s at a time", g)
	}
	w.busy[g] = true
	if len(w.busy) > w.workers {
		w.t.Errorf("A52 %d calls at a time", len(w.busy))
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.busy, g)
	}
}

func (w *watched) Groups(ctx context.Context) ([]registry.Group, error) {
	defer w.begin(registry.Group{})()
	return w.Target.Groups(ctx)
}

func (w *watched) Read(ctx context.Context, g registry.Group) ([]registry.Held, error) {
	defer w.begin(g)()
	return w.Target.Read(ctx, g)
}

func (w *watched) Write(ctx context.Context, c registry.Change) error {
	defer w.begin(c.Group)()
	w.check(c)
	err := w.Target.Write(ctx, c)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.empties(c)
	}
	return err
}

// empties checks that the guard leaves no more groups without an entry than it
// may: in a world of four, one of a bridge, and one of what no bridge claimed.
func (w *watched) empties(c registry.Change) {
	delete(w.emptied, c.Group)
	if !w.guarded || len(c.Want) > 0 || len(c.Delete) == 0 {
		return
	}
	w.emptied[c.Group] = time.Now()
	n := 0
	for _, at := range w.emptied {
		if time.Since(at) < bridge.DefaultGuard().Window {
			n++
		}
	}
	if n > 3 {
		w.t.Errorf("%d of 4 groups emptied within the window", n)
	}
}

// check judges a change by what the tables say at this moment.
func (w *watched) check(c registry.Change) {
	claims := w.claims()
	for _, p := range c.Put {
		if p.Old != nil && p.Old.Owner != "me" {
			w.t.Errorf("replaces what is not ours: %+v", p)
		}
	}
	for _, h := range c.Delete {
		at := place{c.Group, h.Key}
		if h.Owner != "me" {
			w.t.Errorf("deletes what is not ours: %+v", h)
		}
		if _, claimed := claims[at]; claimed {
			w.t.Errorf("deletes what is claimed: %+v", h)
		}
		if err := w.ignorance(at); err != nil {
			w.t.Errorf("deletes %s on ignorance: %v", h.Key, err)
		}
	}
}

// claims returns what the tables claim, the winner of each key.
func (w *watched) claims() map[place]registry.Entry {
	out := map[place]registry.Entry{}
	for i, b := range w.bridges {
		rows, _ := b.Table.Snapshot()
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			entries, err := b.Project(rows[name])
			if err != nil {
				continue
			}
			for _, e := range entries {
				at := place{e.Group, e.Key}
				if _, taken := out[at]; !taken {
					out[at] = e
					w.mu.Lock()
					w.last[at] = claimant{i, name}
					w.mu.Unlock()
				}
			}
		}
	}
	return out
}

// ignorance returns why a key may not be deleted.
func (w *watched) ignorance(at place) error {
	w.mu.Lock()
	who, known := w.last[at]
	w.mu.Unlock()
	for i, b := range w.bridges {
		_, k := b.Table.Snapshot()
		switch {
		case known && i != who.bridge:
		case !k.Synced:
			return fmt.Errorf("bridge %s is not synced", b.Name)
		case known && k.Of(who.service) != nil:
			return k.Of(who.service)
		case !known && (k.Stale != nil || len(k.Unknown) > 0):
			return fmt.Errorf("bridge %s is stale, or does not know all", b.Name)
		}
	}
	return nil
}

func (c *chaos) run() {
	for range c.r.IntN(8) { // of an earlier run, and of others
		h := mine(fmt.Sprint("g", c.r.IntN(4)), c.addr())
		if c.r.IntN(3) == 0 {
			h.Owner = "other"
		}
		c.target.Set(h)
	}
	c.starts(c.watched)
	for range 120 {
		c.happens()
		synctest.Wait()
		c.watched.claims()
		if c.r.IntN(4) == 0 {
			c.status() // which checks what the loop counts
		}
		if c.r.IntN(2) == 0 {
			c.in([]time.Duration{10 * ms, time.Second, 20 * time.Second, 2 * time.Minute}[c.r.IntN(4)])
		}
	}
	c.heal()
	c.agrees()
}

func (c *chaos) addr() string { return fmt.Sprintf("10.0.0.%d:80", c.r.IntN(5)) }

func (c *chaos) service() *registry.Service {
	var addrs []string
	for range c.r.IntN(4) {
		if a := c.addr(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	s := service(c.name(), addrs...)
	s.Application = fmt.Sprint("g", c.r.IntN(4))
	for i := range s.Endpoints {
		s.Endpoints[i].Weight = uint32(c.r.IntN(2))
	}
	return s
}

func (c *chaos) name() string { return fmt.Sprint([]string{"x/s", "y/s"}[c.r.IntN(2)], c.r.IntN(4)) }

// happens does one thing.
func (c *chaos) happens() {
	table := c.tables[[]string{"b", "c"}[c.r.IntN(2)]]
	switch c.r.IntN(14) {
	case 0, 1, 2, 3, 4:
		table.Put(c.service())
	case 5, 6:
		table.Delete(registry.Name(c.name()))
	case 7:
		rows, _ := table.Snapshot()
		for name := range rows {
			if c.r.IntN(4) == 0 {
				delete(rows, name)
			}
		}
		table.Replace(maps.Values(rows))
	case 8:
		table.Stale([]error{nil, errLost}[c.r.IntN(2)])
	case 9:
		table.Unknown([]string{"x/*", "y/s1"}[c.r.IntN(2)], []error{nil, errDown}[c.r.IntN(2)])
	case 10:
		h := theirs(fmt.Sprint("g", c.r.IntN(4)), c.addr())
		c.target.Set(h)
	case 11:
		c.target.Drop(group(fmt.Sprint("g", c.r.IntN(4))), c.addr())
	case 12:
		c.target.Expire()
	case 13:
		c.watched.mu.Lock()
		c.watched.faults = !c.watched.faults
		c.watched.mu.Unlock()
	}
}

// heal ends every fault and approves what is held.
func (c *chaos) heal() {
	c.watched.mu.Lock()
	c.watched.faults, c.watched.guarded = false, false
	c.watched.mu.Unlock()
	for _, table := range c.tables {
		table.Unknown("x/*", nil)
		table.Unknown("y/s1", nil)
		rows, _ := table.Snapshot()
		table.Replace(maps.Values(rows))
	}
	c.in(20 * time.Minute)
	for range 3 { // what came and went settles for up to an hour
		for _, h := range c.status().Holds {
			if err := c.loop.Approve(c.t.Context(), h.ID, "oracle"); err != nil && !errors.Is(err, bridge.ErrUnrecorded) {
				c.t.Error(err)
			}
		}
		c.in(time.Hour)
	}
}

// agrees compares the target with the oracle.
func (c *chaos) agrees() {
	want := c.watched.claims()
	for at, e := range want {
		h, ok := c.heldAt(at)
		switch {
		case !ok:
			c.t.Errorf("missing: %+v", e)
		case h.Owner == "me" && h.Entry != e:
			c.t.Errorf("holds %+v, want %+v", h, e)
		}
	}
	for _, e := range c.target.Entries() {
		at := place{e.Group, e.Key}
		if h, _ := c.heldAt(at); h.Owner == "me" && want[at] != e {
			c.t.Errorf("left over: %+v", e)
		}
	}
	st := c.status()
	if !st.InSync() || len(st.Holds) != 0 {
		c.t.Errorf("not in sync: %+v", st)
	}
	seen := map[string]bool{}
	for _, sv := range st.Services {
		id := sv.Bridge + " " + string(sv.Service)
		if seen[id] || sv.Reason == "" {
			c.t.Errorf("not exactly one reason: %+v", sv)
		}
		seen[id] = true
	}
}

func (c *chaos) heldAt(at place) (registry.Held, bool) {
	list, err := c.target.Read(c.t.Context(), at.group)
	if err != nil {
		c.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(h registry.Held) bool { return h.Key == at.key })
	if i < 0 {
		return registry.Held{}, false
	}
	return list[i], true
}
