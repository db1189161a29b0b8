package hertz_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	hclient "github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/middlewares/client/sd"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/app/server/registry"
	"github.com/cloudwego/hertz/pkg/common/config"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/hertz"
)

func member(t *testing.T, r *clientfake.Registry) *client.Client {
	t.Helper()
	return clientfake.Member(t, r, client.Options{})
}

// TestRegistry_Lifetime: a real Hertz server registers, and a real Hertz client calls it by its name.
func TestRegistry_Lifetime(t *testing.T) {
	r := clientfake.New()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := server.New(server.WithListener(l), server.WithExitWaitTime(time.Second),
		server.WithRegistry(hertz.NewRegistry(member(t, r)), &registry.Info{ServiceName: "greeter", Addr: l.Addr(), Weight: 20, Tags: map[string]string{"team": "shop"}}))
	h.GET("/hello", func(_ context.Context, c *app.RequestContext) { c.String(200, "hello") })
	end, ended := make(chan struct{}), make(chan struct{})
	h.SetCustomSignalWaiter(func(failed chan error) error {
		select {
		case err := <-failed:
			return err
		case <-end:
			return nil // as after SIGTERM
		}
	})
	go func() {
		defer close(ended)
		h.Spin()
	}()

	consumer := member(t, r)
	resolver := hertz.NewResolver(consumer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := consumer.Watch(client.Named("greeter"))
	defer w.Stop()
	for {
		s, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Endpoints) == 1 {
			break
		}
	}
	found, err := resolver.Resolve(ctx, "greeter")
	if err != nil || len(found.Instances) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	if team, _ := found.Instances[0].Tag("team"); team != "shop" || found.Instances[0].Weight() != 20 || found.Instances[0].Address().String() != l.Addr().String() {
		t.Errorf("%+v", found.Instances[0])
	}
	cli, err := hclient.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	cli.Use(sd.Discovery(resolver))
	status, body, err := cli.Get(ctx, nil, "http://greeter/hello", config.WithSD(true))
	if err != nil || status != 200 || string(body) != "hello" {
		t.Errorf("%d %q, %v", status, body, err)
	}
	close(end)
	<-ended
	for {
		s, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Endpoints) == 0 {
			break
		}
	}
}

func TestRegistry_NoAddress(t *testing.T) {
	r := hertz.NewRegistry(member(t, clientfake.New()))
	for _, info := range []*registry.Info{nil, {ServiceName: "greeter"}} {
		if r.Register(info) == nil || r.Deregister(info) == nil {
			t.Errorf("%+v is accepted", info)
		}
	}
}
