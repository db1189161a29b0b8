package frameworks_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

func webServer(t *testing.T) string {
	t.Helper()
	l := listen(t)
	s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

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

// get calls an http server.
func get(t *testing.T, address string) {
	t.Helper()
	eventually(t, "http to "+address, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/hello", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return errors.Join(harness.Same(answer.StatusCode, http.StatusOK), answer.Body.Close())
	})
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
