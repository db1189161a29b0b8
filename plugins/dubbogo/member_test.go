package dubbogo_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/clienttest"
)

func member(t testing.TB, r *clienttest.Registry) *client.Client {
	t.Helper()
	c, err := client.New(r.Backend(), client.Options{Settle: time.Millisecond, Doubt: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
