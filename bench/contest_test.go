package bench_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// spent is what one side of a contest took: time, and what this process and
// the server's used of the processors.
type spent struct{ wall, ours, server time.Duration }

// turn measures one side.
func turn(t *testing.T, server *harness.Process, do func()) spent {
	t.Helper()
	began, ours, theirs := time.Now(), cpu(t), server.CPU(t)
	do()
	return spent{time.Since(began), cpu(t) - ours, server.CPU(t) - theirs}
}

// A contest is one row: both sides are measured once a round, and who begins
// changes. Only times of one round are compared, because the machine is not
// equally busy in all of them: of the ratios of all rounds the middle one
// counts.
type contest struct {
	what        string
	rounds      int
	limit       float64
	beyond      time.Duration // not 0: what may be spent beyond the floor, and what the ratio is of
	floor, ours func(round int) spent
}

func (c contest) run(t *testing.T) {
	t.Helper()
	var all []row
	for round := range c.rounds {
		var f, o spent
		if round%2 == 0 {
			f, o = c.floor(round), c.ours(round)
		} else {
			o = c.ours(round)
			f = c.floor(round)
		}
		r := c.row(f, o)
		t.Logf("round %d: %s: %s, %s, %s", round, r.what, r.ours, r.floor, load())
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b row) int { return cmp.Compare(a.ratio, b.ratio) })
	results.add(t, all[(len(all)-1)/2])
}

func (c contest) row(floor, ours spent) row {
	used := fmt.Sprintf("CPU %s, the server's %s; of the floor %s and %s", short(ours.ours), short(ours.server), short(floor.ours), short(floor.server))
	if c.beyond == 0 {
		return against(fmt.Sprintf("%s (%s)", c.what, used), ours.wall, floor.wall, c.limit)
	}
	return against(fmt.Sprintf("%s (%s against %s; %s)", c.what, short(ours.wall), short(floor.wall), used), ours.wall-floor.wall, c.beyond, c.limit)
}
