// Package porttest reserves loopback ports for tests.
package porttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Free returns a loopback port on which nothing listens, and the ports at these distances from it.
// They are reserved on this machine until the test ends, because a server may start late or restart.
// They are below the range that the kernel uses for connections, so that no connection takes them.
func Free(t testing.TB, distances ...int) []int {
	t.Helper()
	distances = append([]int{0}, distances...)
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

// Address returns an address of 127.0.0.1 with a port of Free.
func Address(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", Free(t)[0])
}

// claim locks the file of a port until the test ends. It returns false if another test holds the
// lock.
func claim(t testing.TB, port int) bool {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "xds-bridge-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close() // nothing was written
		return false
	}
	t.Cleanup(func() { _ = file.Close() }) // releases the lock
	return true
}

func canListen(t testing.TB, port int) bool {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
