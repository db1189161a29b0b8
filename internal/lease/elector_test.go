package lease_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
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

const ttl = 15 * time.Second

var errCut = errors.New("no route")

// A world is the replicas of one target in virtual time, with their lease record.
type world struct {
	*testing.T

	all []*replica

	mu      sync.Mutex
	text    string
	version int
}

// A replica is an elector with a store and a loop, which becomes ready for its role some
// time after it gets the role.
type replica struct {
	*lease.Elector

	w     *world
	name  string
	ttl   time.Duration
	slow  time.Duration // how long the loop takes to become ready
	write time.Duration // how long a write of the record takes
	reads bool          // it becomes ready as a standby, but never as a leader
	cut   atomic.Bool   // it cannot reach the record
	away  atomic.Bool   // it cannot reach its target
	stop  func()
}

func away(r *replica) { r.away.Store(true) }

func worlds(t *testing.T, tests map[string]func(*world)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(&world{T: t}) }) })
	}
}

// put replaces the record.
func (w *world) put(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text, w.version = text, w.version+1
}

// Load implements lease.Store.
func (r *replica) Load(context.Context) ([]byte, string, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.cut.Load() {
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

// joins starts a replica.
func (w *world) joins(name string, change ...func(*replica)) *replica {
	w.Helper()
	r := &replica{w: w, name: name, ttl: ttl, slow: 100 * time.Millisecond}
	for _, c := range change {
		c(r)
	}
	r.Elector = lease.New(lease.Options{Store: r, Target: "zk", Identity: name, TTL: r.ttl, Reaches: func() bool { return !r.away.Load() }})
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	running.Go(func() { r.loop(ctx) })
	r.stop = func() { cancel(); running.Wait() }
	w.Cleanup(r.stop)
	w.all = append(w.all, r)
	return r
}

// loop reports that it is ready some time after each change.
func (r *replica) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Changed():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.slow):
		}
		if l := r.Leadership(); !r.reads || l.Role != bridge.RoleLeader {
			r.Ready(l)
		}
	}
}

// in lets time pass, and fails the test if two replicas lead at once.
func (w *world) in(d time.Duration) {
	w.Helper()
	step := max(10*time.Millisecond, d/1000)
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(step)
		synctest.Wait()
		if who := w.leaders(); len(who) > 1 {
			w.Fatalf("%s and %s lead at once", who[0].name, who[1].name)
		}
	}
}

func (w *world) leaders() []*replica {
	return slices.DeleteFunc(slices.Clone(w.all), func(r *replica) bool { return r.Leadership().Role != bridge.RoleLeader })
}

// led lets time pass, and fails the test unless the given replica then leads, or none if
// it is nil.
func (w *world) led(r *replica, d time.Duration) {
	w.Helper()
	w.in(d)
	who := append(w.leaders(), nil)
	if who[0] == r {
		return
	}
	for _, r := range w.all {
		w.Logf("%s: State() = %+v", r.name, r.State())
	}
	w.Fatalf("%d lead, want another one", len(who)-1)
}

// expect fails the test unless ok is true.
func (r *replica) expect(want string, ok bool) { //nolint:revive // a finding, not a mode
	r.w.Helper()
	if !ok {
		r.w.Errorf("%s: State() = %+v, want %s", r.name, r.State(), want)
	}
}

// leaves lets a replica leave, and fails the test if that takes longer than a time.
func (r *replica) leaves(within time.Duration) error {
	ctx, cancel := context.WithTimeout(r.w.Context(), within)
	defer cancel()
	return r.Leave(ctx)
}

// pair starts two replicas, of which the first leads.
func (w *world) pair(change ...func(*replica)) (a, b *replica) {
	w.Helper()
	a = w.joins("a")
	w.in(time.Second)
	b = w.joins("b", change...)
	w.led(a, time.Minute)
	return a, b
}

func TestElector_Leader(t *testing.T) {
	killed := func(ttl time.Duration) func(*world) {
		return func(w *world) {
			a := w.joins("a", func(r *replica) { r.ttl = ttl })
			w.in(time.Second)
			b := w.joins("b")
			w.joins("c", func(r *replica) { r.slow = 1e6 * time.Hour })
			w.joins("d", away)
			w.led(a, 30*time.Second)
			before := a.State().Term
			a.stop()
			w.all = w.all[1:]
			w.led(nil, ttl*3/4)
			w.led(b, ttl/4+2*time.Second) // one poll that sees its last beat, and one that misses the next
			b.expect("a later term", b.State().Term > before)
		}
	}
	worlds(t, map[string]func(*world){
		"one replica, and then with a standby": func(w *world) {
			a := w.joins("a", away) // it leads although it is not ready
			w.led(a, 10*time.Millisecond)
			w.led(a, time.Hour)
			a.away.Store(false)
			b := w.joins("b")
			w.led(a, 10*time.Minute)
			for _, r := range []*replica{a, b} {
				s := r.State()
				r.expect("two members led by a, ready", s.Ready && s.Leader == "a" && len(s.Members) == 2 && s.Lost == 0)
			}
		},
		"a killed leader is replaced soon":     killed(ttl),
		"after its own ttl, if that is larger": killed(time.Minute),
		"no replica reaches the record": func(w *world) {
			a, b := w.pair()
			before := a.State().Term
			a.cut.Store(true)
			b.cut.Store(true)
			w.led(nil, 10*time.Minute)
			s := a.State()
			a.expect("the error, a lease lost and no leader", strings.Contains(s.LastError, "no route") && s.Lost == 1 && s.Leader == "")
			a.cut.Store(false)
			b.cut.Store(false)
			w.led(a, ttl) // no replica counted as dead
			a.expect("the same term and no error", a.State().Term == before && a.State().LastError == "")
		},
		"a record that was deleted or overwritten": func(w *world) {
			a, b := w.pair()
			for _, text := range []string{"", "{"} {
				before := a.State().Term
				w.put(text)
				w.led(a, time.Minute)
				b.expect("it ready, and no earlier term", b.State().Ready && b.State().Term >= before)
			}
		},
		"a record of a later version": func(w *world) {
			a, _ := w.pair()
			w.put(`{"format":2}`)
			w.led(nil, time.Minute)
			a.expect("it leaves the record unchanged", strings.Contains(a.State().LastError, "format 2") && w.text == `{"format":2}`)
		},
		"a leader that loses its target": func(w *world) {
			a, b := w.pair()
			blinks := func(r *replica) {
				r.away.Store(true)
				w.in(7 * ttl)
				r.away.Store(false)
				w.led(r, 10*time.Minute)
			}
			blinks(a)
			a.away.Store(true)
			w.led(b, 9*ttl)
			a.away.Store(false)
			w.in(time.Minute)
			blinks(b)
			a.expect("it ready", a.State().Ready)
		},
		"no replica reaches the target": func(w *world) {
			a := w.joins("a", func(r *replica) { r.reads = true })
			w.joins("b", func(r *replica) { r.reads = true })
			w.in(time.Minute)
			before := a.State().Term
			w.in(2 * time.Hour)
			moved := a.State().Term - before
			a.expect("2 to 10 terms in two hours", moved >= 2 && moved <= 10)
		},
		"a lease counts from before the read": func(w *world) {
			asked := time.Now()
			a := w.joins("a", func(r *replica) { r.write = 2 * time.Second })
			w.in(3 * time.Second)
			until := a.State().Until
			a.expect("two thirds of a ttl", !until.IsZero() && !until.After(asked.Add(ttl*2/3)))
			w.joins("b")
			w.in(time.Minute) // writes of both meet
		},
	})
}

func TestElector_Leave(t *testing.T) {
	worlds(t, map[string]func(*world){
		"it hands over and waits for the next": func(w *world) {
			a, b := w.pair(func(r *replica) { r.slow = 5 * time.Second })
			left := make(chan error, 1)
			go func() { left <- a.Leave(w.Context()) }()
			w.led(b, 3*time.Second)
			a.expect("it to wait", len(left) == 0)
			w.in(7 * time.Second)
			a.expect("it gone", len(left) == 1 && <-left == nil)
			b.expect("one member, ready", len(b.State().Members) == 1 && b.State().Ready)
		},
		"it leads until a standby is ready": func(w *world) {
			a, b := w.pair(away)
			if err := a.leaves(20 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("Leave() = %v, want it to give up", err)
			}
			w.led(a, 0)
			b.away.Store(false)
			w.led(b, 10*time.Second)
		},
		"a standby or a single replica leaves at once": func(w *world) {
			a, b := w.pair()
			for _, r := range []*replica{b, a} {
				w.led(a, 0)
				if err := r.leaves(time.Second); err != nil {
					w.Errorf("Leave() of %s = %v, want nil", r.name, err)
				}
			}
			w.led(nil, time.Minute)
			w.led(w.joins("c"), 10*time.Millisecond)
		},
	})
}

func TestElector_Differing(t *testing.T) {
	differs := func(r *replica, want string) {
		r.w.Helper()
		if got, differs := r.Differing(); got != want || differs != (want != "") {
			r.w.Errorf("%s: Differing() = %q, %t, want %q", r.name, got, differs, want)
		}
	}
	configured := func(w *world, name, text string) *replica {
		r := w.joins(name)
		r.Configure(text)
		w.in(5 * time.Second)
		return r
	}
	worlds(t, map[string]func(*world){
		"another configuration until all have it": func(w *world) {
			a, b := configured(w, "a", "old"), configured(w, "b", "")
			for _, text := range []string{"", "new", "old"} { // an unknown configuration does not differ
				b.Configure(text)
				w.in(5 * time.Second)
				differs(a, map[string]string{"new": "b"}[text])
				differs(b, map[string]string{"new": "a"}[text])
			}
		},
		"unknown before the record was read": func(w *world) {
			a := w.joins("a", func(r *replica) { r.cut.Store(true) })
			w.in(time.Minute)
			if name, differs := a.Differing(); name != "" || !differs {
				w.Errorf("Differing() = %q, %t, want no name and true", name, differs)
			}
		},
		"a replica that left may come back": func(w *world) {
			a, b := configured(w, "a", "old"), configured(w, "b", "new")
			b.stop()
			c := configured(w, "c", "old") // it comes later
			w.in(lease.Remembered - time.Minute)
			differs(a, "b")
			differs(c, "b")
			w.in(2 * time.Minute)
			differs(a, "")
		},
	})
}
