package hertz_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	hclient "github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/app/server/registry"
	"github.com/cloudwego/hertz/pkg/common/config"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/hertz"
)

// A server is found by the name in the URL of a request.
func Example() {
	// Instead of hertz.Open("zookeeper://10.1.0.1:2181?identity=greeter-1", client.Options{Log: slog.Default()}, zookeeper.Kind()).
	backend := clientfake.New().Backend()
	c, err := client.New(backend, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	h := server.New(server.WithListener(l), server.WithExitWaitTime(time.Second),
		server.WithRegistry(hertz.NewRegistry(c), &registry.Info{ServiceName: "greeter", Addr: l.Addr(), Weight: registry.DefaultWeight}))
	h.GET("/hello", func(_ context.Context, c *app.RequestContext) { c.String(200, "hello") })
	stop, ended := make(chan struct{}), make(chan struct{})
	h.SetCustomSignalWaiter(func(chan error) error { <-stop; return nil })
	go func() { defer close(ended); h.Spin() }()

	cli, err := hclient.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	cli.Use(hertz.Discovery(c))
	found := client.Named("greeter")
	for watch := c.Watch(found); ; { // until it is registered
		if s, err := watch.Next(context.Background()); err != nil || len(s.Endpoints) > 0 {
			watch.Stop()
			break
		}
	}
	status, body, err := cli.Get(context.Background(), nil, "http://greeter/hello", config.WithSD(true))
	fmt.Println(status, string(body), err)
	close(stop)
	<-ended
	// Output: 200 hello <nil>
}
