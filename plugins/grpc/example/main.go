// A server of gRPC that is found in a registry, and a client that calls it.
//
//	go run ./example -registry 'zookeeper://127.0.0.1:2181?identity=one' serve greeter
//	go run ./example -registry 'zookeeper://127.0.0.1:2181' call greeter
package main

import (
	"context"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	xgrpc "github.com/xds-bridge/xds-bridge/plugins/grpc"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example"
)

func main() { program().Main() }

func program() example.Program {
	return example.Program{Serve: serve, Dial: dial, Open: client.Open, Log: xgrpc.Log(slog.LevelInfo)}
}

func serve(ctx context.Context, c *client.Client, at example.Place) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at.Address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	example.RegisterGreeter(server, at)

	host, port, err := client.Reachable(l.Addr().String())
	if err != nil {
		return err
	}
	instance := client.Instance{Application: at.Service, Host: host, Port: port, Protocol: "grpc"}
	if err := c.Register(instance); err != nil {
		return err
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = c.Deregister(limited, instance) // at the latest it is gone with this process
		server.GracefulStop()
	}()
	err = server.Serve(l)
	<-drained
	return err
}

func dial(c *client.Client, service string) (example.Call, error) {
	balancer.Register(xgrpc.NewBalancer()) // once per program, for weights and the routes of a mesh
	conn, err := grpc.NewClient("xdsbridge:///"+service,
		grpc.WithResolvers(xgrpc.NewBuilder(c)), grpc.WithDefaultServiceConfig(xgrpc.ServiceConfig), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) { return example.Greet(ctx, conn) }, nil
}
