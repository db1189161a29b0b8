//go:build soak

package simulation_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/guarantees"
	"github.com/xds-bridge/xds-bridge/internal/soaktest"
)

// TestWorld_Schedules has errors of sources, targets, leases and replicas
// follow each other at random.
func TestWorld_Schedules(t *testing.T) {
	for seed := range soaktest.Seeds(t) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			holds(t, populated, schedule(rand.New(rand.NewPCG(uint64(seed), 7)), draws()))
		})
	}
}

// TestWorld_LateFollowers does the same with views of the source that are up to ten seconds
// late, as ZooKeeper allows for a follower. The next leader may write entries again that the
// one before withdrew within that time.
func TestWorld_LateFollowers(t *testing.T) {
	kinds := draws()
	kinds["followers are late"] = onView(func(v *sourceView) { v.late = 10 * time.Second })
	kinds["followers are a little late"] = onView(func(v *sourceView) { v.late = 2 * time.Second })
	kinds["followers are in time"] = onView(func(v *sourceView) { v.late = 0 })
	for seed := range soaktest.Seeds(t) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			holds(t, populated, schedule(rand.New(rand.NewPCG(uint64(seed), 11)), kinds), guarantees.NoResurrection, guarantees.NoSpuriousWrite)
		})
	}
}

// schedule draws forty steps.
func schedule(r *rand.Rand, draw map[string]func(string, *rand.Rand) step) []step {
	steps := make([]step, 0, 40)
	for range cap(steps) {
		names := slices.Sorted(maps.Keys(draw))
		name := names[r.IntN(len(names))]
		steps = append(steps, draw[name](name, r))
	}
	return steps
}

func onReplica(do func(*replica)) func(string, *rand.Rand) step {
	return func(name string, r *rand.Rand) step {
		i := r.IntN(3)
		return step{fmt.Sprintf("%s (replica %d)", name, i), func(w *world) { do(w.replicas[i]) }}
	}
}

func onView(do func(*sourceView)) func(string, *rand.Rand) step {
	return onReplica(func(r *replica) { r.view.set(do) })
}

// draws are the kinds of steps; each draws its values when it is drawn, so
// that a shorter schedule has the same steps.
func draws() map[string]func(string, *rand.Rand) step {
	changes := func(name string, r *rand.Rand) step {
		s, n, skip := fmt.Sprint("s", r.IntN(5)), r.IntN(5), r.IntN(3)
		var addresses []string
		for i := range n {
			addresses = append(addresses, address(s, (i+skip)%6))
		}
		slices.Sort(addresses)
		return step{fmt.Sprintf("%s (%s: %v)", name, s, addresses), func(w *world) { w.change(s, addresses...) }}
	}
	return map[string]func(string, *rand.Rand) step{
		"a service changes":                   changes,
		"a service changes again":             changes,
		"a service changes once more":         changes,
		"the next follower is behind":         onView(func(v *sourceView) { v.behind = 40 * time.Second }),
		"the next follower has everything":    onView(func(v *sourceView) { v.behind = 0 }),
		"the source is away":                  onView(func(v *sourceView) { v.cut = true }),
		"the source is back":                  onView(func(v *sourceView) { v.cut = false }),
		"the connection to the source breaks": onView(func(v *sourceView) { v.broken = true }),
		"a follower comes back empty":         onView(func(v *sourceView) { v.empty, v.broken = true, true }),
		"a fresh reading is asked for":        onReplica(func(r *replica) { r.view.recheck() }),
		"the lease is unreachable":            onReplica(func(r *replica) { r.set(func(r *replica) { r.noLease = true }) }),
		"the lease is back":                   onReplica(func(r *replica) { r.set(func(r *replica) { r.noLease = false }) }),
		"the target is unreachable":           onReplica(func(r *replica) { r.set(func(r *replica) { r.noTarget = true }) }),
		"the target is back":                  onReplica(func(r *replica) { r.set(func(r *replica) { r.noTarget = false }) }),
		"writes outlast the lease":            onReplica(func(r *replica) { r.set(func(r *replica) { r.slow = 20 * time.Second }) }),
		"writes are quick":                    onReplica(func(r *replica) { r.set(func(r *replica) { r.slow = 0 }) }),
		"it is frozen":                        onReplica((*replica).pauses),
		"it continues":                        onReplica((*replica).resumes),
		"it is killed and started": func(name string, r *rand.Rand) step {
			i := r.IntN(3)
			return step{fmt.Sprintf("%s (replica %d)", name, i), func(w *world) {
				w.replicas[i].stop()
				w.starts(i)
			}}
		},
		"the target loses an entry": func(name string, r *rand.Rand) step {
			s := fmt.Sprint("s", r.IntN(5))
			key := address(s, r.IntN(4))
			return step{fmt.Sprintf("%s (%s of %s)", name, key, s), func(w *world) { w.loses(s, key) }}
		},
		"somebody else registers": func(name string, r *rand.Rand) step {
			s := fmt.Sprint("s", r.IntN(5))
			key := fmt.Sprintf("10.99.0.%d:80", r.IntN(3))
			return step{fmt.Sprintf("%s (%s in %s)", name, key, s), func(w *world) { w.others(s, key) }}
		},
		"time passes": func(name string, r *rand.Rand) step {
			d := []time.Duration{20 * time.Second, 2 * time.Minute, 12 * time.Minute}[r.IntN(3)]
			return step{fmt.Sprintf("%s (%s)", name, d), func(w *world) { w.in(d) }}
		},
	}
}
