package kitex_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	kitex "github.com/cloudwego/kitex/pkg/registry"
	"github.com/cloudwego/kitex/pkg/rpcinfo"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xkitex "github.com/xds-bridge/xds-bridge/plugins/kitex"
)

// A Kitex server with server.WithRegistry, and a Kitex client with xkitex.Discovery.
func Example() {
	// Instead of xkitex.Open("zookeeper://10.1.0.1:2181?identity=greeter-1", client.Options{Log: slog.Default()}, zookeeper.Kind()).
	backend := clientfake.New().Backend()
	c, err := client.New(backend, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	registry := xkitex.NewRegistry(c)
	info := &kitex.Info{ServiceName: "greeter", PayloadCodec: "thrift", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8888}, Weight: 10}
	if err := registry.Register(info); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.WaitVisible(ctx, client.Instance{Application: "greeter", Host: "10.0.0.1", Port: 8888, Protocol: "thrift"}); err != nil {
		log.Fatal(err)
	}

	resolver := xkitex.NewResolver(c)
	greeter := resolver.Target(ctx, rpcinfo.NewEndpointInfo("greeter", "", nil, nil))
	result, err := resolver.Resolve(ctx, greeter)
	for _, at := range result.Instances {
		fmt.Println(at.Address(), at.Weight(), err)
	}
	fmt.Println(registry.Deregister(info))
	// Output:
	// 10.0.0.1:8888 10 <nil>
	// <nil>
}
