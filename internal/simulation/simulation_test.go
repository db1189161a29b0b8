package simulation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// populated is a world with five services of three endpoints.
func populated() *world {
	w := newWorld()
	all := make(set)
	for n := range 5 {
		s := fmt.Sprint("s", n)
		all[s] = []string{address(s, 0), address(s, 1), address(s, 2)}
	}
	w.setTruth(all)
	return w
}

// TestWorld_CrashAtEveryWrite ends the writing replica at each write, before and after the
// write took effect; in the gate, in turns.
func TestWorld_CrashAtEveryWrite(t *testing.T) {
	steps := []step{
		{"one service changes", func(w *world) { w.change("s1", address("s1", 1), address("s1", 3)) }},
		{"another comes", func(w *world) { w.change("s5", address("s5", 0)) }},
		{"it is written", func(w *world) { w.in(20 * time.Second) }},
		{"one goes", func(w *world) { w.change("s2") }},
		{"an entry is lost", func(w *world) { w.loses("s0", address("s0", 0)) }},
		{"time passes", func(w *world) { w.in(2 * time.Minute) }},
	}
	broken, writes := outcome(t, populated, steps)
	if len(broken) > 0 || writes < 8 {
		t.Fatalf("%d writes without a crash, and broken: %v", writes, broken)
	}
	for n := 1; n <= writes; n++ {
		for _, after := range []bool{false, true} {
			if testing.Short() && after != (n%2 == 0) {
				continue
			}
			t.Run(fmt.Sprintf("write %d, after it: %v", n, after), func(t *testing.T) {
				holds(t, func() *world {
					w := populated()
					w.crash, w.after = n, after
					return w
				}, steps)
			})
		}
	}
}

// TestWorld_Defects shows that the simulation finds defects: a world with a defect breaks
// its guarantee.
func TestWorld_Defects(t *testing.T) {
	late := []step{
		{"a service grows, and the message of who writes it is in flight for long", func(w *world) {
			w.leader().set(func(r *replica) { r.slow = 25 * time.Second })
			w.change("s1", address("s1", 0), address("s1", 1), address("s1", 2), address("s1", 4))
		}},
		{"it is frozen", func(w *world) { w.leader().pauses() }},
		{"another leads next and writes it", func(w *world) { w.in(2 * time.Minute) }},
		{"the service shrinks", func(w *world) { w.change("s1", address("s1", 0), address("s1", 1), address("s1", 2)) }},
		{"that is written", func(w *world) { w.in(2 * time.Minute) }},
		{"the paused one continues", func(w *world) {
			for _, r := range w.replicas {
				r.resumes()
			}
		}},
	}
	stale := []step{
		{"an endpoint more", func(w *world) {
			w.change("s1", address("s1", 0), address("s1", 1), address("s1", 2), address("s1", 4))
		}},
		{"it is written", func(w *world) { w.in(time.Minute) }},
		{"new connections to a follower that is behind", func(w *world) {
			for _, r := range w.replicas {
				r.view.set(func(v *sourceView) { v.behind, v.broken = 100*time.Second, true })
			}
		}},
		{"time passes", func(w *world) { w.in(10 * time.Minute) }},
	}
	for name, defect := range map[string]struct {
		steps  []step
		build  func() *world
		breaks guarantees.Guarantee
	}{
		"transactions without a fence": {late, func() *world {
			w := populated()
			w.unfenced = true
			return w
		}, guarantees.OneWriter},
		"a first reading without sync": {stale, func() *world {
			w := populated()
			w.unsync = true
			return w
		}, guarantees.NeverLess},
	} {
		t.Run(name, func(t *testing.T) {
			holds(t, populated, defect.steps)
			broken, _ := outcome(t, defect.build, defect.steps)
			if !slices.ContainsFunc(broken, func(v guarantees.Violation) bool { return v.Guarantee == defect.breaks }) {
				t.Errorf("breaks %v, want %s", broken, defect.breaks)
			}
		})
	}
}
