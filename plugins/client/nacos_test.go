package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xnacos "github.com/xds-bridge/xds-bridge/plugins/client/nacos"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// TestNacos_WrongPassword: the server is connected and rejects the login.
func TestNacos_WrongPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rpc, web := nacosfake.NewServer(), bufconn.Listen(1<<20), bufconn.Listen(1<<20)
		s.User, s.Password = "shop", "right"
		s.Serve(rpc, web)
		t.Cleanup(s.Close)
		b, err := xnacos.New(xnacos.Options{Identity: "greeter-1", Conn: nacos.Options{
			Servers: []string{"http://nacos:8848"}, Username: "shop", Password: func() (string, error) { return "wrong", nil },
			Dialer: func(ctx context.Context, _, address string) (net.Conn, error) {
				if strings.HasSuffix(address, ":9848") {
					return rpc.DialContext(ctx)
				}
				return web.DialContext(ctx)
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, b, client.Options{})
		if err := c.Register(at("10.0.0.1", "greeter")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := c.Resolve(ctx, greeterKey); !errors.Is(err, client.ErrDenied) || ctx.Err() != nil {
			t.Errorf("Resolve: %v", err)
		}
		if err := c.Status().Problem(); !errors.Is(err, client.ErrDenied) {
			t.Errorf("Status: %v", err)
		}
		if err := b.Err(); !errors.Is(err, client.ErrDenied) {
			t.Errorf("error: %v", err)
		}
	})
}
