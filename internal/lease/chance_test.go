//go:build soak

package lease_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/soaktest"
)

// TestNoTwoLead lets replicas come, go, die and lose their way by chance:
// never do two of them lead, and in the end one does.
func TestNoTwoLead(t *testing.T) {
	for seed := range uint64(soaktest.Seeds(t)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chance(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// chance is one world in which things happen by chance.
func chance(t *testing.T, r *rand.Rand) {
	t.Helper()
	w := newWorld(t)
	next := 'a'
	for range 25 {
		switch alive := living(w); {
		case len(alive) < 2 || r.IntN(4) == 0 && len(alive) < 5:
			slow := time.Duration(r.IntN(3000)) * time.Millisecond
			w.joins(string(next), func(x *replica) { x.slow = slow })
			next++
		default:
			one := alive[r.IntN(len(alive))]
			switch r.IntN(5) {
			case 0:
				one.stop()
			case 1:
				go func() { _ = one.Leave(t.Context()) }()
			default:
				one.way.set(func(l *way) {
					l.cut, l.lost, l.delay = r.IntN(3) == 0, r.IntN(3) == 0, time.Duration(r.IntN(3)*r.IntN(4000))*time.Millisecond
				})
			}
		}
		w.in(time.Duration(r.IntN(12_000)) * time.Millisecond)
	}
	for _, one := range w.all {
		one.way.set(func(l *way) { l.cut, l.lost, l.delay = false, false, 0 })
	}
	w.joins("last")
	w.in(2 * time.Minute)
	w.led()
}

// living returns the replicas that were not stopped.
func living(w *world) []*replica {
	var out []*replica
	for _, r := range w.all {
		if s := r.State(); s.LastError == "" && slices.Contains(s.Members, r.name) {
			out = append(out, r)
		}
	}
	return out
}
