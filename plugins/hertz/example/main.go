// A server of Hertz that is found in a registry, and a client that calls it.
//
//	go run ./example -registry 'zookeeper://127.0.0.1:2181?identity=one' serve greeter
//	go run ./example -registry 'zookeeper://127.0.0.1:2181' call greeter
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	hclient "github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/app/server/registry"
	"github.com/cloudwego/hertz/pkg/common/config"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/hertz"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example"
)

func main() { program().Main() }

func program() example.Program {
	return example.Program{Serve: serve, Dial: dial, Open: hertz.Open, Log: hertz.Log(slog.LevelInfo), Describes: true}
}

func serve(ctx context.Context, c *client.Client, at example.Place) error {
	address, err := net.ResolveTCPAddr("tcp", at.Address)
	if err != nil {
		return err
	}
	h := server.New(server.WithHostPorts(at.Address), server.WithExitWaitTime(15*time.Second),
		server.WithRegistry(hertz.NewRegistry(c), &registry.Info{ServiceName: at.Service, Addr: address, Weight: cmp.Or(at.Weight, registry.DefaultWeight), Tags: at.Tags}))
	h.GET("/hello", func(_ context.Context, c *app.RequestContext) { c.String(200, at.Answer()) })
	h.SetCustomSignalWaiter(func(failed chan error) error {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	h.Spin()
	return nil
}

func dial(c *client.Client, service string) (example.Call, error) {
	cli, err := hclient.NewClient()
	if err != nil {
		return nil, err
	}
	cli.Use(hertz.Discovery(c))
	return func(ctx context.Context) (string, error) {
		status, body, err := cli.Get(ctx, nil, "http://"+service+"/hello", config.WithSD(true))
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		return string(body), err
	}, nil
}
