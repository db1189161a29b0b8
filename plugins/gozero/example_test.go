package gozero_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/zeromicro/go-zero/zrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/gozero"
)

// A server is published under the name in its configuration, and a zrpc client finds it.
func Example() {
	// Instead of gozero.Open("nacos://10.2.0.1:8848?identity=greeter-1", client.Options{Log: slog.Default()}, nacos.Kind()).
	backend := clientfake.New().Backend()
	c, err := client.New(backend, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	// The server that zrpc.NewServer starts at conf.ListenOn.
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	conf := zrpc.RpcServerConf{ListenOn: l.Addr().String()}
	conf.Name = "greeter.rpc"
	stop, err := gozero.Publish(c, conf)
	if err != nil {
		log.Fatal(err)
	}

	z, err := zrpc.NewClient(zrpc.RpcClientConf{Target: "xdsbridge:///greeter.rpc", NonBlock: true}, gozero.WithRegistry(c))
	if err != nil {
		log.Fatal(err)
	}
	ready := grpc.WaitForReady(true) // it was published just now
	answer, err := grpc_health_v1.NewHealthClient(z.Conn()).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{}, ready)
	fmt.Println(answer.GetStatus(), err)
	fmt.Println(stop())
	// Output:
	// SERVING <nil>
	// <nil>
}
