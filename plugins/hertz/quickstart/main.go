// A server of Hertz that is found in a registry, and a client that calls it.
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
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	hclient "github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/app/server/registry"
	"github.com/cloudwego/hertz/pkg/common/config"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
	xhertz "github.com/xds-bridge/xds-bridge/plugins/hertz"
)

func main() {
	serving := len(os.Args) == 4 && os.Args[1] == "serve"
	if !serving && (len(os.Args) != 3 || os.Args[1] != "call") {
		fmt.Fprintln(os.Stderr, "usage: serve URL HOST:PORT, or call URL")
		os.Exit(2)
	}
	c, err := xhertz.Open(os.Args[2], client.Options{Log: slog.Default()}, all.Kinds()...)
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
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return err
	}
	h := server.New(server.WithHostPorts(address), server.WithExitWaitTime(15*time.Second),
		server.WithRegistry(xhertz.NewRegistry(c), &registry.Info{ServiceName: "greeter", Addr: addr, Weight: registry.DefaultWeight}))
	h.GET("/hello", func(_ context.Context, c *app.RequestContext) { c.String(200, "hello") })
	h.SetCustomSignalWaiter(func(failed chan error) error { // Hertz itself ends at once with SIGTERM
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
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

func call(c *client.Client) error {
	cli, err := hclient.NewClient()
	if err != nil {
		return err
	}
	cli.Use(xhertz.Discovery(c))
	status, body, err := cli.Get(context.Background(), nil, "http://greeter/hello", config.WithSD(true))
	fmt.Printf("greeter says %d %s\n", status, body)
	return err
}
