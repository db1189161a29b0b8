// A server of Kitex that is found in a registry, and a client that calls it.
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
	"time"

	"github.com/cloudwego/kitex/client/genericclient"
	"github.com/cloudwego/kitex/pkg/generic"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/server/genericserver"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
	xkitex "github.com/xds-bridge/xds-bridge/plugins/kitex"
)

func main() {
	serving := len(os.Args) == 4 && os.Args[1] == "serve"
	if !serving && (len(os.Args) != 3 || os.Args[1] != "call") {
		fmt.Fprintln(os.Stderr, "usage: serve URL HOST:PORT, or call URL")
		os.Exit(2)
	}
	c, err := xkitex.Open(os.Args[2], client.Options{Log: slog.Default()}, all.Kinds()...)
	if err != nil {
		log.Fatal(err)
	}
	idl, err := generic.NewThriftContentWithAbsIncludePathProvider("greeter.thrift",
		map[string]string{"greeter.thrift": "namespace go greeter\nservice Greeter { string Hello(1: string name) }"})
	if err != nil {
		log.Fatal(err)
	}
	codec, err := generic.JSONThriftGeneric(idl) // in place of what kitex generates
	if err != nil {
		log.Fatal(err)
	}
	if serving {
		err = serve(c, codec, os.Args[3])
	} else {
		err = call(c, codec)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		log.Fatal(err)
	}
}

type greeter struct{}

func (*greeter) GenericCall(context.Context, string, any) (any, error) { return "hello", nil }

func serve(c *client.Client, codec generic.Generic, address string) error {
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return err
	}
	return genericserver.NewServer(new(greeter), codec, server.WithServiceAddr(addr), server.WithExitWaitTime(15*time.Second),
		server.WithServerBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: "greeter"}),
		server.WithRegistry(xkitex.NewRegistry(c))).Run()
}

func call(c *client.Client, codec generic.Generic) error {
	cli, err := genericclient.NewClient("greeter", codec, xkitex.Discovery(c))
	if err != nil {
		return err
	}
	answer, err := cli.GenericCall(context.Background(), "Hello", `"example"`)
	fmt.Println("greeter says", answer)
	return err
}
