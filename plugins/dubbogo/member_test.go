package dubbogo_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/clienttest"
)

func member(t testing.TB, r *clienttest.Registry) *client.Client {
	t.Helper()
	return clienttest.Member(t, r, client.Options{Settle: time.Millisecond, Doubt: time.Millisecond})
}
