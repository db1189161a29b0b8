package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/lease"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A cell is the record that replicas share.
type cell struct {
	mu       sync.Mutex
	data     []byte
	version  int
	watchers []chan struct{}
}

func (c *cell) save(record []byte, version string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != c.now() {
		return registry.ErrConflict
	}
	c.data, c.version = slices.Clone(record), c.version+1
	for _, w := range c.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	return nil
}

// now returns the present version; the lock is held.
func (c *cell) now() string {
	if c.version == 0 {
		return ""
	}
	return strconv.Itoa(c.version)
}

func (c *cell) wipe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data, c.version = nil, 0
}

// link is how one replica reaches the record.
type link struct {
	cell    *cell
	changed chan struct{}

	mu    sync.Mutex
	cut   bool          // nothing passes
	lost  bool          // what is written arrives, its answer does not
	delay time.Duration // of what is written, after its sender gave it up
	slow  time.Duration // of what is written, while its sender waits
}

var errCut = errors.New("no route")

func (l *link) Load(context.Context) ([]byte, string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, "", errCut
	}
	l.cell.mu.Lock()
	defer l.cell.mu.Unlock()
	return slices.Clone(l.cell.data), l.cell.now(), nil
}

func (l *link) Save(_ context.Context, record []byte, version string) error {
	l.mu.Lock()
	cut, lost, delay, slow := l.cut, l.lost, l.delay, l.slow
	l.mu.Unlock()
	time.Sleep(slow)
	switch {
	case cut:
		return errCut
	case delay > 0:
		time.AfterFunc(delay, func() { _ = l.cell.save(record, version) })
		return errCut
	case lost:
		_ = l.cell.save(record, version)
		return errCut
	}
	return l.cell.save(record, version)
}

func (l *link) Changed() <-chan struct{} { return l.changed }

func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// A world is several replicas of one owner in virtual time.
type world struct {
	t      *testing.T
	shards int
	cell   *cell
	all    []*replica
}

// A replica is a member with one loop, which is ready for everything a moment
// after it is asked to be.
type replica struct {
	*lease.Member
	name  string
	link  *link
	gate  *bridge.Gate
	slow  time.Duration // how long the loop takes
	away  atomic.Bool   // it does not reach its target
	reads bool          // it gets ready to take over, and never to decide
	stop  func()
	began time.Time
}

const ttl = 15 * time.Second

func newWorld(t *testing.T, shards int) *world {
	t.Helper()
	return &world{t: t, shards: shards, cell: &cell{}}
}

// joins starts a replica. Only those that watch are told of changes.
func (w *world) joins(name string, change ...func(*replica)) *replica {
	w.t.Helper()
	r := &replica{name: name, link: &link{cell: w.cell}, slow: 100 * time.Millisecond, began: time.Now()}
	r.link.changed = make(chan struct{}, 1)
	w.cell.mu.Lock()
	w.cell.watchers = append(w.cell.watchers, r.link.changed)
	w.cell.mu.Unlock()
	for _, c := range change {
		c(r)
	}
	m, err := lease.New(lease.Options{Store: r.link, Identity: name, Shards: w.shards, TTL: ttl})
	if err != nil {
		w.t.Fatal(err)
	}
	g := m.Gate(func() bool { return !r.away.Load() })
	g.Enter()
	r.Member, r.gate = m, g.Bridge()
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = m.Run(ctx) })
	running.Go(func() { r.loop(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(r.stop)
	w.all = append(w.all, r)
	return r
}

// loop tells that it is ready some time after each change.
func (r *replica) loop(ctx context.Context) {
	for {
		for i := range r.gate.Shards {
			if s := r.gate.Stand(i); s.Role != bridge.RoleAway && (!r.reads || s.Role != bridge.RoleDecider) {
				r.gate.Ready(i, s)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.gate.Changed:
		}
		timer := time.NewTimer(r.slow)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// count returns in how many shards a replica has a role at this moment.
func (r *replica) count(role bridge.Role) int {
	n := 0
	for i := range r.gate.Shards {
		if r.gate.Stand(i).Role == role {
			n++
		}
	}
	return n
}

// in lets time pass, and fails the test whenever two replicas decide one
// shard.
func (w *world) in(d time.Duration) {
	w.t.Helper()
	step := max(10*time.Millisecond, d/1000)
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(step)
		synctest.Wait()
		for i := range w.shards {
			if who := w.deciders(i); len(who) > 1 {
				w.t.Fatalf("shard %d is decided by %v", i, who)
			}
		}
	}
}

func (w *world) deciders(i int) []string {
	var who []string
	for _, r := range w.all {
		if r.gate.Stand(i).Role == bridge.RoleDecider {
			who = append(who, r.name)
		}
	}
	return who
}

// decided fails the test unless every shard has one decider.
func (w *world) decided() {
	w.t.Helper()
	for i := range w.shards {
		if who := w.deciders(i); len(who) != 1 {
			w.t.Errorf("shard %d is decided by %v", i, who)
		}
	}
}

func (w *world) has(want map[*replica][2]int) {
	w.t.Helper()
	for r, n := range want {
		if got := [2]int{r.count(bridge.RoleDecider), r.count(bridge.RoleWarm)}; got != n {
			w.t.Errorf("%s decides %d and keeps %d warm, want %d and %d: %+v", r.name, got[0], got[1], n[0], n[1], r.Status())
		}
	}
}

func worlds(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func at(began time.Time) string { return fmt.Sprintf("after %v", time.Since(began)) }
