package ads_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// TestDial_Backoff shows that a connection which was not established for long is
// tried twice a minute, whatever uses it.
func TestDial_Backoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64
		conn, err := ads.Dial("passthrough:///istiod", ads.Credentials{}, grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			attempts.Add(1)
			return nil, errors.New("connection refused")
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		conn.Connect()
		in(20 * time.Minute) // after 30 gRPC lets it rest
		for range 20 {
			before := attempts.Load()
			in(30 * time.Second)
			if n := attempts.Load() - before; n < 1 || n > 2 {
				t.Fatalf("%d attempts within 30 s, want 1 or 2", n)
			}
		}
	})
}
