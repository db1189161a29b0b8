package frameworks_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

func grpcServer(t *testing.T) string {
	t.Helper()
	s, l := grpc.NewServer(), listen(t)
	healthpb.RegisterHealthServer(s, serving{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

type serving struct {
	healthpb.UnimplementedHealthServer
}

// Check implements healthpb.HealthServer.
func (serving) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// healthy calls a gRPC server.
func healthy(t *testing.T, address string) {
	t.Helper()
	eventually(t, "gRPC to "+address, func(ctx context.Context) error {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			return err
		}
		return harness.Same(answer.GetStatus(), healthpb.HealthCheckResponse_SERVING)
	})
}

func eventually(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	harness.Eventually(t, soon, what, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return call(ctx)
	})
}
