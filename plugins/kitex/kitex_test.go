package kitex_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client/genericclient"
	"github.com/cloudwego/kitex/pkg/discovery"
	"github.com/cloudwego/kitex/pkg/generic"
	registryapi "github.com/cloudwego/kitex/pkg/registry"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/server/genericserver"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/kitex"
)

func member(t *testing.T, r *clientfake.Registry) *client.Client {
	t.Helper()
	return clientfake.Member(t, r, client.Options{DrainDelay: time.Millisecond})
}

func codec(t *testing.T) generic.Generic {
	t.Helper()
	const file = "greeter.thrift"
	idl, err := generic.NewThriftContentWithAbsIncludePathProvider(file, map[string]string{file: "service Greeter { string Hello(1: string name) }"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := generic.JSONThriftGeneric(idl)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

type greeter struct{}

// GenericCall implements generic.Service.
func (*greeter) GenericCall(context.Context, string, any) (any, error) { return "hello", nil }

// await waits until a name has n endpoints.
func await(t *testing.T, w *client.Watch, n int) {
	t.Helper()
	for {
		s, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Endpoints) == n {
			return
		}
	}
}

// TestRegistry_ServerAndClient: a real Kitex server registers, and a real Kitex client calls it by its
// name.
func TestRegistry_ServerAndClient(t *testing.T) {
	r := clientfake.New()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	notified, ended := make(chan error), make(chan error, 1)
	s := genericserver.NewServer(&greeter{}, codec(t), server.WithListener(l), server.WithExitWaitTime(time.Second),
		server.WithExitSignal(func() <-chan error { return notified }),
		server.WithServerBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: "greeter"}),
		server.WithRegistry(kitex.NewRegistry(member(t, r))),
		server.WithRegistryInfo(&registryapi.Info{Weight: 20, Tags: map[string]string{"team": "shop"}}))
	go func() { ended <- s.Run() }()

	consumer := member(t, r)
	w := consumer.Watch(client.Named("greeter"))
	defer w.Stop()
	await(t, w, 1)
	found, err := kitex.NewResolver(consumer).Resolve(t.Context(), "greeter")
	if err != nil || len(found.Instances) != 1 {
		t.Fatalf("Resolve() = %+v, %v", found, err)
	}
	if team, _ := found.Instances[0].Tag("team"); team != "shop" || found.Instances[0].Weight() != 20 || found.Instances[0].Address().String() != l.Addr().String() {
		t.Errorf("Resolve() = %+v", found.Instances[0])
	}
	cli, err := genericclient.NewClient("greeter", codec(t), kitex.Discovery(consumer))
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close() //nolint:errcheck // nothing is sent any more
	if answer, err := cli.GenericCall(t.Context(), "Hello", `"me"`); err != nil || answer != "hello" {
		t.Errorf("GenericCall() = %v, %v", answer, err)
	}
	close(notified)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	await(t, w, 0)
}

func TestRegistry_BadAddress(t *testing.T) {
	for name, info := range map[string]*registryapi.Info{
		"no server":   nil,
		"none":        {ServiceName: "greeter"},
		"of a socket": {ServiceName: "greeter", Addr: &net.UnixAddr{Name: "/run/greeter", Net: "unix"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := kitex.NewRegistry(member(t, clientfake.New()))
			if r.Register(info) == nil || r.Deregister(info) == nil {
				t.Error("no error that reports the address")
			}
		})
	}
}

func TestResolver_OneAddressOfTwoInterfaces(t *testing.T) {
	c := member(t, clientfake.New())
	one := client.Instance{Application: "greeter", Interfaces: []client.Interface{{Name: "api.A"}, {Name: "api.B"}}, Host: "10.0.0.1", Port: 80, Protocol: "thrift"}
	if err := c.Register(one); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitVisible(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if got, err := kitex.NewResolver(c).Resolve(t.Context(), "greeter"); err != nil || len(got.Instances) != 1 {
		t.Errorf("Resolve() = %d instances of one address, %v", len(got.Instances), err)
	}
}

func TestResolver_Diff(t *testing.T) {
	of := func(weight int, tag string) discovery.Result {
		return discovery.Result{Instances: []discovery.Instance{
			discovery.NewInstance("tcp", "10.0.0.1:80", weight, map[string]string{"zone": tag}),
		}}
	}
	for name, c := range map[string]struct {
		before, after           discovery.Result
		added, updated, removed int
	}{
		"nothing":    {of(10, "a"), of(10, "a"), 0, 0, 0},
		"an address": {discovery.Result{}, of(10, "a"), 1, 0, 0},
		"the last":   {of(10, "a"), discovery.Result{}, 0, 0, 1},
		"a weight":   {of(10, "a"), of(20, "a"), 0, 1, 0},
		"a tag":      {of(10, "a"), of(10, "b"), 0, 1, 0},
		"both":       {of(10, "a"), of(20, "b"), 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			change, changed := kitex.NewResolver(nil).Diff("greeter", c.before, c.after)
			if len(change.Added) != c.added || len(change.Updated) != c.updated || len(change.Removed) != c.removed ||
				changed != (c.added+c.updated+c.removed > 0) || change.Result.CacheKey != "greeter" {
				t.Errorf("Diff() = %+v, %v", change, changed)
			}
		})
	}
}
