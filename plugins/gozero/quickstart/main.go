// A server of zrpc that is found in a registry, and a client that calls it.
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
	"os"
	"time"

	"github.com/zeromicro/go-zero/zrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
	"github.com/xds-bridge/xds-bridge/plugins/gozero"
)

func main() {
	serving := len(os.Args) == 4 && os.Args[1] == "serve"
	if !serving && (len(os.Args) != 3 || os.Args[1] != "call") {
		fmt.Fprintln(os.Stderr, "usage: serve URL HOST:PORT, or call URL")
		os.Exit(2)
	}
	c, err := gozero.Open(os.Args[2], client.Options{Log: slog.Default()}, all.Kinds()...)
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
	conf := zrpc.RpcServerConf{ListenOn: address, Health: true}
	conf.Name = "greeter.rpc"
	conf.Shutdown.WrapUpTime = 5 * time.Second // in which consumers leave
	conf.Shutdown.WaitTime = 30 * time.Second
	server, err := zrpc.NewServer(conf, func(*grpc.Server) {}) // which registers the service that goctl generated
	if err != nil {
		return err
	}
	defer server.Stop()
	if _, err := gozero.Publish(c, conf); err != nil {
		return err
	}
	server.Start()
	return nil
}

func call(c *client.Client) error {
	conf := zrpc.RpcClientConf{Target: "xdsbridge:///greeter.rpc", NonBlock: true, Timeout: 10_000}
	z, err := zrpc.NewClient(conf, gozero.WithRegistry(c))
	if err != nil {
		return err
	}
	answer, err := grpc_health_v1.NewHealthClient(z.Conn()).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println("greeter is", answer.GetStatus())
	return err
}
