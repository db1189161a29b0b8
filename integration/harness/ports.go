package harness

import (
	"net"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/porttest"
)

// FreePort returns a port of loopback that no other test has.
func FreePort(t testing.TB) int {
	t.Helper()
	return porttest.Free(t)[0]
}

// Address returns an address of 127.0.0.1 that nobody listens at.
func Address(t testing.TB) string {
	t.Helper()
	return porttest.Address(t)
}

// Listens reports an error where nobody answers at an address.
func Listens(t testing.TB, address string) error {
	t.Helper()
	return listens(t, address)
}

// listens reports an error where nobody answers at the address.
func listens(t testing.TB, address string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
