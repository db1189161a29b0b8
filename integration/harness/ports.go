package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// FreePort returns a port of loopback that nobody listens on, and that no other
// test of this machine is given before this one has ended: what is to listen
// there may need a while, or end and come back. It lies below those that the
// kernel gives to connections, which would take it meanwhile.
func FreePort(t testing.TB) int {
	t.Helper()
	return freePorts(t, 0)[0]
}

// freePorts returns a free port and those at these distances from it.
func freePorts(t testing.TB, distances ...int) []int {
	t.Helper()
	for range 1000 {
		first := 12_000 + rand.IntN(19_000) //nolint:gosec // spreads tests, keeps no secret
		var ports []int
		for _, d := range distances {
			if port := first + d; claim(t, port) && canListen(t, port) {
				ports = append(ports, port)
			}
		}
		if len(ports) == len(distances) {
			return ports
		}
	}
	t.Fatalf("no free ports between 12000 and 31000 at distances %v", distances)
	return nil
}

// claim locks the file that stands for a port until the test ends, and reports
// whether nobody else has.
func claim(t testing.TB, port int) bool {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "xds-bridge-ports-"+strconv.Itoa(os.Getuid()))
	must(t, os.MkdirAll(dir, 0o700))
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close() // it was only looked at
		return false
	}
	t.Cleanup(func() { _ = file.Close() }) // which ends the lock
	return true
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
