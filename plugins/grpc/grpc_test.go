package grpc_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xgrpc "github.com/xds-bridge/xds-bridge/plugins/grpc"
)

// member returns the client of a process in a registry.
func member(t testing.TB, r *clientfake.Registry) *client.Client {
	t.Helper()
	return clientfake.Member(t, r, client.Options{})
}

// provide starts a server and returns it as an instance.
func provide(t testing.TB) client.Instance {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	host, port, err := client.Reachable(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return client.Instance{Application: "greeter", Host: host, Port: port, Protocol: "grpc"}
}

func dial(t testing.TB, c *client.Client, target string) healthpb.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithResolvers(xgrpc.NewBuilder(c)), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// answers calls until exactly these instances answer.
func answers(t *testing.T, h healthpb.HealthClient, want ...client.Instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		got := make(map[string]bool)
		for range 4 * len(want) {
			var p peer.Peer
			if _, err := h.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
			got[p.Addr.String()] = true
		}
		for _, i := range want {
			if !got[i.Address()] {
				got = nil
			}
		}
		if len(got) == len(want) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("others answer than %d instances", len(want))
		}
	}
}

func TestResolver_NameAndKey(t *testing.T) {
	r := clientfake.New()
	one, two := provide(t), provide(t)
	providers := member(t, r)
	if err := providers.Register(one); err != nil {
		t.Fatal(err)
	}
	consumer := member(t, r)
	for _, target := range []string{"xdsbridge:///greeter", "xdsbridge:///providers:greeter::"} {
		answers(t, dial(t, consumer, target), one)
	}
	h := dial(t, consumer, "xdsbridge:///greeter")
	if err := providers.Register(two); err != nil {
		t.Fatal(err)
	}
	answers(t, h, one, two)
	if err := providers.Deregister(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	answers(t, h, two)
	r.Down(errors.New("the registry is away"))
	answers(t, h, two)
}

func TestResolver_Errors(t *testing.T) {
	r := clientfake.New()
	r.Down(errors.New("the registry is away"))
	h := dial(t, member(t, r), "xdsbridge:///greeter")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := h.Check(ctx, &healthpb.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the registry is away") {
		t.Error(err)
	}
	for _, target := range []string{"xdsbridge:///", "xdsbridge:///providers:", "xdsbridge:///a:b:c", "xdsbridge://authority/greeter"} {
		if _, err := dial(t, member(t, r), target).Check(ctx, &healthpb.HealthCheckRequest{}); err == nil {
			t.Errorf("%s: accepted", target)
		}
	}
}
