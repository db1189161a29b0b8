// A server of gRPC that is found in a registry, and a client that calls it.
//
//	go run . serve 'zookeeper://127.0.0.1:2181?identity=one' 127.0.0.1:8000
//	go run . call 'zookeeper://127.0.0.1:2181'
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
	xgrpc "github.com/xds-bridge/xds-bridge/plugins/grpc"
)

func main() {
	serving := len(os.Args) == 4 && os.Args[1] == "serve"
	if !serving && (len(os.Args) != 3 || os.Args[1] != "call") {
		fmt.Fprintln(os.Stderr, "usage: serve URL HOST:PORT, or call URL")
		os.Exit(2)
	}
	c, err := client.Open(os.Args[2], client.Options{Log: slog.Default()}, all.Kinds()...)
	if err != nil {
		log.Fatal(err)
	}
	if serving {
		err = serve(c, os.Args[3])
	} else {
		err = call(c)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		log.Fatal(err)
	}
}

func serve(c *client.Client, address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer()) // or the service that protoc generated

	host, port, err := client.Reachable(l.Addr().String())
	if err != nil {
		return err
	}
	instance := client.Instance{Application: "greeter", Host: host, Port: port, Protocol: "grpc"}
	if err := c.Register(instance); err != nil {
		return err
	}
	go func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		<-ctx.Done()
		_ = c.Deregister(context.Background(), instance) // returns when consumers have left
		server.GracefulStop()
	}()
	return server.Serve(l)
}

func call(c *client.Client) error {
	balancer.Register(xgrpc.NewBalancer())
	conn, err := grpc.NewClient("xdsbridge:///greeter", grpc.WithResolvers(xgrpc.NewBuilder(c)),
		grpc.WithDefaultServiceConfig(xgrpc.ServiceConfig), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println("greeter is", answer.GetStatus())
	return err
}
