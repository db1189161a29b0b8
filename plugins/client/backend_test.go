package client_test

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/conformance/plugin"
	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// The registry for tests passes the suite for real ones.
func TestFake_Conformance(t *testing.T) {
	r := clientfake.New()
	plugin.Backends(t, plugin.World{
		Member: func(t testing.TB, _ string, o client.Options) *client.Client {
			t.Helper()
			return clientfake.Member(t, r, o)
		},
		Break: func(testing.TB) { r.Down(errors.New("connection refused")) },
		Heal:  func(testing.TB) { r.Down(nil) },
	})
}
