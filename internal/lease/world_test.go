package lease_test

import (
	"context"
	"errors"
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
	mu      sync.Mutex
	data    []byte
	version int
}

func (c *cell) save(record []byte, version string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != c.now() {
		return registry.ErrConflict
	}
	c.put(string(record))
	return nil
}

// put writes whatever was there; the lock is held.
func (c *cell) put(record string) {
	c.data, c.version = []byte(record), c.version+1
}

// now returns the present version; the lock is held.
func (c *cell) now() string {
	if c.data == nil {
		return ""
	}
	return strconv.Itoa(c.version)
}

// spoil writes over the record.
func (c *cell) spoil(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(text)
}

func (c *cell) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.data)
}

func (c *cell) wipe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = nil
}

// way is how one replica reaches the record.
type way struct {
	cell *cell

	mu    sync.Mutex
	cut   bool          // nothing passes
	lost  bool          // what is written arrives, its answer does not
	delay time.Duration // of what is written, after its sender gave it up
	slow  time.Duration // of what is written, while its sender waits
}

var errCut = errors.New("no route")

func (l *way) Load(context.Context) ([]byte, string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, "", errCut
	}
	l.cell.mu.Lock()
	defer l.cell.mu.Unlock()
	return slices.Clone(l.cell.data), l.cell.now(), nil
}

func (l *way) Save(_ context.Context, record []byte, version string) error {
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

func (l *way) set(change func(*way)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// A world is the replicas of one target in virtual time.
type world struct {
	t    *testing.T
	cell *cell
	all  []*replica
}

// A replica is an elector with a loop, which is ready for its role a moment
// after it has it.
type replica struct {
	*lease.Elector
	name  string
	way   *way
	ttl   time.Duration
	slow  time.Duration // how long the loop takes
	away  atomic.Bool   // it does not reach its target
	reads bool          // it gets ready as a standby, and never as a leader
	stop  func()
}

const ttl = 15 * time.Second

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, cell: &cell{}}
}

// joins starts a replica.
func (w *world) joins(name string, change ...func(*replica)) *replica {
	w.t.Helper()
	r := &replica{name: name, way: &way{cell: w.cell}, ttl: ttl, slow: 100 * time.Millisecond}
	for _, c := range change {
		c(r)
	}
	r.Elector = lease.New(lease.Options{Store: r.way, Target: "zk", Identity: name, TTL: r.ttl, Reaches: func() bool { return !r.away.Load() }})
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	running.Go(func() { r.loop(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(r.stop)
	w.all = append(w.all, r)
	return r
}

// loop tells that it is ready some time after each change.
func (r *replica) loop(ctx context.Context) {
	r.Ready(bridge.Leadership{})
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Changed():
		}
		timer := time.NewTimer(r.slow)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if l := r.Leadership(); !r.reads || l.Role != bridge.RoleLeader {
			r.Ready(l)
		}
	}
}

func (r *replica) leads() bool { return r.Leadership().Role == bridge.RoleLeader }

// in lets time pass, and fails the test whenever two replicas lead.
func (w *world) in(d time.Duration) {
	w.t.Helper()
	step := max(10*time.Millisecond, d/1000)
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(step)
		synctest.Wait()
		if who := w.leaders(); len(who) > 1 {
			w.t.Fatalf("%v lead at once", who)
		}
	}
}

func (w *world) leaders() (who []string) {
	for _, r := range w.all {
		if r.leads() {
			who = append(who, r.name)
		}
	}
	return who
}

// led fails the test unless one of these replicas leads; any, where none is
// named.
func (w *world) led(by ...*replica) {
	w.t.Helper()
	who := w.leaders()
	if len(who) == 1 && (len(by) == 0 || slices.ContainsFunc(by, func(r *replica) bool { return r.name == who[0] })) {
		return
	}
	for _, r := range w.all {
		w.t.Logf("%s: %+v", r.name, r.State())
	}
	w.t.Errorf("%v lead", who)
}

// leader returns the replica that leads, and the others.
func (w *world) leader() (leads *replica, others []*replica) {
	w.t.Helper()
	w.led()
	for _, r := range w.all {
		if r.leads() {
			leads = r
		} else {
			others = append(others, r)
		}
	}
	return leads, others
}

func worlds(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
