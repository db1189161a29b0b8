package lease_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/lease"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl   = 15 * time.Second
	never = 1e6 * time.Hour
)

// A world is the replicas of one target in virtual time, and the record that
// they share.
type world struct {
	t   *testing.T
	all []*replica

	mu      sync.Mutex
	text    string
	version int
}

// put writes whatever was there.
func (w *world) put(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text, w.version = text, w.version+1
}

// A replica is an elector with a store and a loop, which is ready for its role a
// moment after it has it.
type replica struct {
	*lease.Elector
	w     *world
	name  string
	ttl   time.Duration
	slow  time.Duration // how long the loop takes
	reads bool          // it gets ready as a standby, and never as a leader
	stop  func()

	mu    sync.Mutex
	cut   bool          // it does not reach the record
	away  bool          // it does not reach its target
	write time.Duration // how long a write of the record takes
}

var errCut = errors.New("no route")

// Load implements lease.Store.
func (r *replica) Load(context.Context) ([]byte, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.cut {
		return nil, "", errCut
	}
	return []byte(r.w.text), strconv.Itoa(r.w.version), nil
}

// Save implements lease.Store.
func (r *replica) Save(_ context.Context, record []byte, version string) error {
	time.Sleep(r.write)
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if version != strconv.Itoa(r.w.version) {
		return registry.ErrConflict
	}
	r.w.text, r.w.version = string(record), r.w.version+1
	return nil
}

func (r *replica) set(change func(*replica)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

func (r *replica) reaches() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.away
}

// joins starts a replica.
func (w *world) joins(name string, change ...func(*replica)) *replica {
	w.t.Helper()
	r := &replica{w: w, name: name, ttl: ttl, slow: 100 * time.Millisecond}
	for _, c := range change {
		c(r)
	}
	r.Elector = lease.New(lease.Options{Store: r, Target: "zk", Identity: name, TTL: r.ttl, Reaches: r.reaches})
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	running.Go(func() { r.loop(ctx) })
	r.stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(r.stop)
	w.all = append(w.all, r)
	return r
}

// loop tells that it is ready some time after each change.
func (r *replica) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Changed():
		}
		timer := time.NewTimer(r.slow)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if l := r.Leadership(); !r.reads || l.Role != bridge.RoleLeader {
			r.Ready(l)
		}
	}
}

// in lets time pass, and fails the test whenever two replicas lead.
func (w *world) in(d time.Duration) {
	w.t.Helper()
	step := max(10*time.Millisecond, d/1000)
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(step)
		synctest.Wait()
		if who := w.leaders(); len(who) > 1 {
			w.t.Fatalf("%s and %s lead at once", who[0].name, who[1].name)
		}
	}
}

func (w *world) leaders() []*replica {
	return slices.DeleteFunc(slices.Clone(w.all), func(r *replica) bool { return r.Leadership().Role != bridge.RoleLeader })
}

// led fails the test unless one of these replicas leads, which it returns.
func (w *world) led(by ...*replica) *replica {
	w.t.Helper()
	if who := w.leaders(); len(who) == 1 && slices.Contains(by, who[0]) {
		return who[0]
	}
	for _, r := range w.all {
		w.t.Logf("%s: %+v", r.name, r.State())
	}
	w.t.Fatalf("%d lead", len(w.leaders()))
	return nil
}

// expect fails the test unless the state of a replica is all that.
func (r *replica) expect(all ...bool) {
	r.w.t.Helper()
	if slices.Contains(all, false) {
		r.w.t.Errorf("%s: %+v, want %v", r.name, r.State(), all)
	}
}

func worlds(t *testing.T, tests map[string]func(*world)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(&world{t: t}) }) })
	}
}
