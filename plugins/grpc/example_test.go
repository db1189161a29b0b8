package grpc_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xgrpc "github.com/xds-bridge/xds-bridge/plugins/grpc"
)

// A server is found by its name.
func Example() {
	// Instead of client.Open("zookeeper://10.1.0.1:2181?identity=greeter-1", client.Options{Log: slog.Default()}, zookeeper.Kind()).
	backend := clientfake.New().Backend()
	c, err := client.New(backend, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	ctx := context.Background()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	host, port, err := client.Reachable(l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	instance := client.Instance{Application: "greeter", Host: host, Port: port, Protocol: "grpc"}
	if err := c.Register(instance); err != nil {
		log.Fatal(err)
	}
	if err := c.WaitVisible(ctx, instance); err != nil {
		log.Fatal(err)
	}

	conn, err := grpc.NewClient("xdsbridge:///greeter", grpc.WithResolvers(xgrpc.NewBuilder(c)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(answer.GetStatus(), err)
	// Output: SERVING <nil>
}
