// A server of zrpc that is found in a registry, and a client that calls it.
//
//	go run ./example -registry 'zookeeper://127.0.0.1:2181?identity=one' serve greeter
//	go run ./example -registry 'zookeeper://127.0.0.1:2181' call greeter
package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/zeromicro/go-zero/zrpc"
	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/gozero"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example"
)

func main() { program().Main() }

func program() example.Program {
	return example.Program{Serve: serve, Dial: dial, Open: gozero.Open, Log: gozero.Log(slog.LevelInfo)}
}

// serve ends when go-zero does, which listens for SIGTERM by itself.
func serve(_ context.Context, c *client.Client, at example.Place) error {
	conf := zrpc.RpcServerConf{ListenOn: at.Address}
	conf.Name = at.Service
	conf.Log.Encoding = "plain"
	conf.Shutdown.WrapUpTime = 5 * time.Second // in which consumers leave
	conf.Shutdown.WaitTime = 30 * time.Second  // at most
	server, err := zrpc.NewServer(conf, func(s *grpc.Server) { example.RegisterGreeter(s, at) })
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

func dial(c *client.Client, service string) (example.Call, error) {
	z, err := zrpc.NewClient(zrpc.RpcClientConf{Target: "xdsbridge:///" + service, NonBlock: true, Timeout: 10_000}, gozero.WithRegistry(c))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) { return example.Greet(ctx, z.Conn()) }, nil
}
