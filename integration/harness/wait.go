package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

// poll is how often a condition is looked at.
const poll = 10 * time.Millisecond

// Eventually waits until check returns nil and fails the test where that takes
// too long, on a Stopwatch. It returns what the wait took.
func Eventually(t testing.TB, within time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	watch := StartStopwatch()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return watch.Took()
		}
		if watch.Over(within) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		<-ticker.C
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

// FreePort returns a port of loopback that nobody listens on. It lies below
// those that the kernel gives to connections, which would take it meanwhile.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		if port := 12_000 + rand.IntN(19_000); canListen(t, port) { //nolint:gosec // spreads tests, keeps no secret
			return port
		}
	}
	t.Fatal("no free port between 12000 and 31000")
	return 0
}

func canListen(t testing.TB, port int) bool {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	must(t, l.Close())
	return true
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

// Address returns an address of 127.0.0.1 that nobody listens at.
func Address(t testing.TB) string {
	t.Helper()
	return freeAddress(t)
}

// Listens reports an error where nobody answers at an address.
func Listens(t testing.TB, address string) error {
	t.Helper()
	return listens(t, address)
}

func freeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}

// listens reports an error where nobody answers at the address.
func listens(t testing.TB, address string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
