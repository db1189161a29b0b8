package gozero_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/zeromicro/go-zero/zrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/gozero"
)

func member(t *testing.T, r *clientfake.Registry) *client.Client {
	t.Helper()
	return clientfake.Member(t, r, client.Options{})
}

// freeAddress returns a loopback address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestPublisher_Lifetime: a real zrpc server publishes itself, and a real zrpc client calls it by its
// name.
func TestPublisher_Lifetime(t *testing.T) {
	r := clientfake.New()
	conf := zrpc.RpcServerConf{ListenOn: freeAddress(t)}
	conf.Name = "greeter.rpc"
	server, err := zrpc.NewServer(conf, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) })
	if err != nil {
		t.Fatal(err)
	}
	go server.Start()
	defer server.Stop()
	stop, err := gozero.Publish(member(t, r), conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	consumer := member(t, r)
	z, err := zrpc.NewClient(zrpc.RpcClientConf{Target: "xdsbridge:///greeter.rpc", NonBlock: true, Timeout: 60_000}, gozero.WithRegistry(consumer))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Conn().Close() }()
	if _, err := healthpb.NewHealthClient(z.Conn()).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w := consumer.Watch(client.Named("greeter.rpc"))
	defer w.Stop()
	for {
		s, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("after it was withdrawn: %v", err)
		}
		if len(s.Endpoints) == 0 {
			break
		}
	}
	if _, err := gozero.Publish(consumer, zrpc.RpcServerConf{ListenOn: "nowhere"}); err == nil {
		t.Error("an address without a port is accepted")
	}
}
