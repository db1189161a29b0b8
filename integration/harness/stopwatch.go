package harness

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// starved is how much longer than allowed a wait may last in all where the
// machine had no processor to give for all of it.
const starved = 5

// A Stopwatch measures time without that in which something on this machine
// waited for a processor: the time of a program is its own doing only while it
// runs. Where the kernel does not report that, it measures all of the time.
type Stopwatch struct {
	began   time.Time
	stalled time.Duration // before it began
}

// StartStopwatch starts one.
func StartStopwatch() Stopwatch { return Stopwatch{began: time.Now(), stalled: stalled()} }

// Took returns the time since the start.
func (s Stopwatch) Took() time.Duration { return s.Between(s.began, time.Now()) }

// Between returns the time between two moments since the start. All that was
// waited since then is subtracted, because nobody knows when it was.
func (s Stopwatch) Between(from, to time.Time) time.Duration {
	return max(0, to.Sub(from)-(stalled()-s.stalled))
}

// Over reports whether more time has passed than is allowed, or much more if
// the machine was short of processors all along.
func (s Stopwatch) Over(within time.Duration) bool {
	if testing.Short() {
		return time.Since(s.began) > patience(within)
	}
	return s.Took() > within || time.Since(s.began) > starved*within
}

// AtMost fails the test if something took longer than a bound. The gate, which
// runs with -short, asserts no time.
func AtMost(t testing.TB, what string, took, bound time.Duration) {
	t.Helper()
	t.Logf("%s: %s", what, took)
	if took > bound && !testing.Short() {
		t.Errorf("%s: got %s, want %s at most", what, took, bound)
	}
}

// patience returns how long is waited for what should last a given time. The
// gate passes on a machine that is ten times slower.
func patience(within time.Duration) time.Duration {
	if testing.Short() {
		return 10 * within
	}
	return within
}

var stallTotal = regexp.MustCompile(`some .*total=(\d+)`)

// stalled returns for how long, since the machine started, something that could
// have run had to wait for a processor: Linux' pressure stall information.
// https://docs.kernel.org/accounting/psi.html
func stalled() time.Duration {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	found := stallTotal.FindSubmatch(text)
	if found == nil {
		return 0
	}
	µs, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(µs) * time.Microsecond
}
