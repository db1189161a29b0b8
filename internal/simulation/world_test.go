// Package simulation_test puts several replicas, their lease, their views of
// one registry and another registry that they write to into one world in
// virtual time, records what happens, and checks it against the guarantees.
package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
	"github.com/xds-bridge/xds-bridge/registry"
)

const owner = "me"

// A world is the whole simulation. Only the goroutine of the test changes it. The calls of
// replicas reach it at different times, so that the same steps give the same history.
type world struct {
	source   *source
	target   *memory.Target
	record   *leaseRecord
	replicas []*replica
	started  int // the number of replicas that were started, for their names
	guard    bridge.Guard
	unsync   bool // a defect: new connections read the state of their follower, however old
	unfenced bool // a defect: transactions do not check terms

	mu      sync.Mutex
	began   time.Time
	term    int64 // of the last write
	writes  int
	crash   int  // the number of the write at which its replica ends; 0: none
	after   bool // it ends after it took effect, instead of before
	crashes []*replica
	history []guarantees.Event
}

// newWorld returns a world of three replicas.
func newWorld() *world {
	w := &world{
		source: newSource(), target: memory.New(memory.Options{Owner: owner}), record: &leaseRecord{},
		replicas: make([]*replica, 3), guard: bridge.DefaultGuard(), began: time.Now(),
	}
	return w
}

// start starts the replicas one after the other.
func (w *world) start() {
	for i := range w.replicas {
		w.starts(i)
		w.in(time.Second)
	}
}

// in lets time pass, and replaces a replica that ended at a write.
func (w *world) in(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(5*time.Second, time.Until(end)))
		synctest.Wait()
		w.mu.Lock()
		crashed := w.crashes
		w.crashes = nil
		w.mu.Unlock()
		for _, r := range crashed {
			if i := slices.Index(w.replicas, r); i >= 0 {
				r.stop()
				w.starts(i)
			}
		}
	}
}

// leader returns the replica that leads now.
func (w *world) leader() *replica {
	for _, r := range w.replicas {
		if r.elector.Leadership().Role == bridge.RoleLeader {
			return r
		}
	}
	panic("no replica leads")
}

func (w *world) end() {
	for _, r := range w.replicas {
		r.stop()
	}
}

// setTruth changes the true content of the source.
func (w *world) setTruth(next set) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.source.now()
	w.source.replace(next)
	names := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(next))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.Equal(before[name], next[name]) {
			list := make(map[string]string)
			for _, a := range next[name] {
				list[a] = "instance"
			}
			w.keep(guarantees.Event{Kind: guarantees.Desired, Group: name, List: list})
		}
	}
}

// change changes one service in the source.
func (w *world) change(service string, addresses ...string) {
	next := maps.Clone(w.source.now())
	if next[service] = addresses; addresses == nil {
		delete(next, service)
	}
	w.setTruth(next)
}

// keep records an event. The caller must hold the lock.
func (w *world) keep(e guarantees.Event) {
	e.At = time.Since(w.began)
	w.history = append(w.history, e)
}

// write is a transaction in flight to the target.
func (w *world) write(ctx context.Context, r *replica, term int64, c registry.Change) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	crash := w.writes == w.crash
	if crash {
		w.crashes = append(w.crashes, r)
	}
	if crash && !w.after {
		return errCut
	}
	if term < w.term && !w.unfenced {
		return registry.ErrFenced
	}
	e := guarantees.Event{Kind: guarantees.Wrote, Group: c.Group.Name, Who: r.name, Term: term, List: make(map[string]string), Owner: w.owners(ctx, c)}
	if err := w.target.Write(ctx, c); err != nil {
		return err
	}
	w.term = max(w.term, term)
	for _, p := range c.Put {
		e.List[p.New.Key] = p.New.Value
	}
	for _, h := range c.Delete {
		e.Gone = append(e.Gone, h.Key)
	}
	w.keep(e)
	w.notify(c.Group.Name) //nolint:contextcheck // a subscriber is notified of every write
	if crash {
		return errCut
	}
	return nil
}

// owners returns the owners of the entries that a change replaces or deletes.
func (w *world) owners(ctx context.Context, c registry.Change) map[string]string {
	there := make(map[string]string)
	for _, h := range must(w.target.Read(ctx, c.Group)) {
		there[h.Key] = h.Owner
	}
	all := make(map[string]string)
	for _, p := range c.Put {
		if whose, is := there[p.New.Key]; is {
			all[p.New.Key] = whose
		}
	}
	for _, h := range c.Delete {
		if whose, is := there[h.Key]; is {
			all[h.Key] = whose
		}
	}
	return all
}

// notify sends the subscriber of a group its current entries.
func (w *world) notify(name string) {
	list := make(map[string]string)
	for _, h := range must(w.target.Read(context.Background(), groupOf(name))) {
		list[h.Key] = h.Value
	}
	w.keep(guarantees.Event{Kind: guarantees.Notified, Group: name, Who: "consumer", List: list})
}

// others adds an entry of another owner.
func (w *world) others(service, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target.Set(registry.Stored{Entry: registry.Entry{Group: groupOf(service), Key: key, Value: "theirs"}, Owner: "other"})
	w.notify(service)
}

// loses deletes an entry as another actor would.
func (w *world) loses(service, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target.Drop(groupOf(service), key)
	w.keep(guarantees.Event{Kind: guarantees.Changed, Group: service, Gone: []string{key}})
	w.notify(service)
}

// heals ends every fault, approves every hold, and checks the end.
func (w *world) heals() {
	for _, r := range w.replicas {
		r.set(func(r *replica) { r.noLease, r.noTarget, r.slow = false, false, 0 })
		r.resumes()
		r.view.set(func(v *sourceView) { v.behind, v.late, v.cut, v.empty = 0, 0, false, false })
		r.view.recheck()
	}
	w.in(w.guard.Window + 12*time.Minute) // longer than Settle and Confirm
	for _, r := range w.replicas {
		for _, h := range r.loop.Status().Holds {
			_ = r.loop.Approve(context.Background(), h.ID, "test") // it may have ended
		}
	}
	w.in(2 * time.Minute)
	w.mu.Lock()
	defer w.mu.Unlock()
	names := make(map[string]bool)
	for _, e := range w.history {
		names[e.Group] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		ours := make(map[string]string)
		for _, h := range must(w.target.Read(context.Background(), groupOf(name))) {
			if h.Owner == owner {
				ours[h.Key] = h.Value
			}
		}
		w.keep(guarantees.Event{Kind: guarantees.Final, Group: name, List: ours})
	}
}

// A step is one thing that happens in a world, with a name that a failed test
// prints.
type step struct {
	name string
	do   func(*world)
}

// outcome plays steps in a new world. It returns the broken guarantees and the number of
// writes.
func outcome(t *testing.T, build func() *world, steps []step) (broken []guarantees.Violation, writes int) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := build()
		defer w.end()
		w.start()
		w.in(time.Minute)
		for _, s := range steps {
			s.do(w)
			w.in(time.Second)
		}
		w.heals()
		broken, writes = guarantees.Check(owner, w.history), w.writes
	})
	return broken, writes
}

// maxWorlds is how many worlds are tried to find the fewest steps.
const maxWorlds = 100

// holds fails the test if the steps break a guarantee, and prints the fewest steps that do.
// Some guarantees may be excepted.
func holds(t *testing.T, build func() *world, steps []step, except ...guarantees.Guarantee) {
	t.Helper()
	excepted := func(v guarantees.Violation) bool { return slices.Contains(except, v.Guarantee) }
	broken, _ := outcome(t, build, steps)
	broken = slices.DeleteFunc(broken, excepted)
	if len(broken) == 0 {
		return
	}
	t.Logf("%v; looking for the fewest steps that break it", broken[0])
	worlds := 0
	short := guarantees.Shrink(steps, func(some []step) bool {
		if worlds++; worlds > maxWorlds {
			return false
		}
		again, _ := outcome(t, build, some)
		return slices.ContainsFunc(again, func(v guarantees.Violation) bool { return v.Guarantee == broken[0].Guarantee })
	})
	var names []string
	for _, s := range short {
		names = append(names, "\n  "+s.name)
	}
	again, _ := outcome(t, build, short)
	t.Errorf("%v\nof %d steps these %d break it:%s\n%v", broken[0], len(steps), len(short), strings.Join(names, ""), again)
}

func address(service string, n int) string {
	return fmt.Sprintf("10.%d.0.%d:80", service[1]-'0', n+1)
}
