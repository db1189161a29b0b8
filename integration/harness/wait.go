package harness

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// poll is how often a condition is looked at.
const poll = 10 * time.Millisecond

// pause returns how long to wait for the next look at a condition: several
// times what the last one took, because many are a process of their own, and
// what is waited for uses the processors too.
func pause(look time.Duration) time.Duration {
	return max(poll, min(4*look, 400*time.Millisecond))
}

// Eventually waits until check returns nil and fails the test where that lasts
// too long, on a Stopwatch. It returns what the wait took.
func Eventually(t testing.TB, within time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	watch := StartStopwatch()
	for {
		began := time.Now()
		err := check()
		if err == nil {
			return watch.Took()
		}
		if watch.Over(within) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		<-time.NewTimer(pause(time.Since(began))).C
	}
}

// Stays looks at a condition for a while and fails the test as soon as it does
// not hold.
func Stays(t testing.TB, during time.Duration, what string, check func() error) {
	t.Helper()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for start := time.Now(); time.Since(start) < during; <-ticker.C {
		if err := check(); err != nil {
			t.Fatalf("%s: did not last %s: %v", what, during, err)
		}
	}
}

// Same returns an error that shows both values where they differ.
func Same(got, want any) error {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		return fmt.Errorf("got %s, want %s", g, w)
	}
	return nil
}

// OwnIP returns an address of this machine that is not loopback: Java Dubbo
// registers no other.
func OwnIP(t testing.TB) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no address but loopback")
	return ""
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Long leaves a test out of the gate, which runs with -short.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes minutes: make test-all runs it")
	}
}
