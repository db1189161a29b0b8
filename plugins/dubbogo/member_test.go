package dubbogo_test

import (
	"testing"
	"time"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
)

func member(t testing.TB, r *clientfake.Registry) *client.Client {
	t.Helper()
	return clientfake.Member(t, r, client.Options{DrainDelay: time.Millisecond, ForgetAfter: time.Millisecond})
}
