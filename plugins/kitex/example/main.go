// A server of Kitex that is found in a registry, and a client that calls it. It
// requires no generated code: its service is reported by a text of Thrift.
//
//	go run ./example -registry 'zookeeper://127.0.0.1:2181?identity=one' serve greeter
//	go run ./example -registry 'zookeeper://127.0.0.1:2181' call greeter
package main

import (
	"context"
	"log/slog"
	"net"
	"time"

	kclient "github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/client/genericclient"
	"github.com/cloudwego/kitex/pkg/generic"
	"github.com/cloudwego/kitex/pkg/registry"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/server/genericserver"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example"
	"github.com/xds-bridge/xds-bridge/plugins/kitex"
)

const greeter = `
namespace go greeter
service Greeter { string Hello(1: string name) }
`

func main() { program().Main() }

func program() example.Program {
	return example.Program{Serve: serve, Dial: dial, Open: kitex.Open, Log: kitex.Log(slog.LevelInfo), Describes: true}
}

// thrift returns the service with its messages as JSON.
func thrift() (generic.Generic, error) {
	idl, err := generic.NewThriftContentWithAbsIncludePathProvider("greeter.thrift", map[string]string{"greeter.thrift": greeter})
	if err != nil {
		return nil, err
	}
	return generic.JSONThriftGeneric(idl)
}

// service answers for a place.
type service struct{ answer string }

// GenericCall implements generic.Service.
func (s *service) GenericCall(context.Context, string, any) (any, error) {
	return s.answer, nil
}

func serve(ctx context.Context, c *client.Client, at example.Place) error {
	address, err := net.ResolveTCPAddr("tcp", at.Address)
	if err != nil {
		return err
	}
	codec, err := thrift()
	if err != nil {
		return err
	}
	return genericserver.NewServer(&service{at.Answer()}, codec,
		server.WithServiceAddr(address), server.WithExitWaitTime(15*time.Second),
		server.WithServerBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: at.Service}),
		server.WithRegistry(kitex.NewRegistry(c)),
		server.WithRegistryInfo(&registry.Info{Weight: at.Weight, Tags: at.Tags}),
		server.WithExitSignal(func() <-chan error {
			notified := make(chan error)
			context.AfterFunc(ctx, func() { close(notified) })
			return notified
		})).Run()
}

func dial(c *client.Client, service string) (example.Call, error) {
	codec, err := thrift()
	if err != nil {
		return nil, err
	}
	cli, err := genericclient.NewClient(service, codec, kitex.Discovery(c), kclient.WithRPCTimeout(5*time.Second))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		answer, err := cli.GenericCall(ctx, "Hello", `"example"`)
		if err != nil {
			return "", err
		}
		return answer.(string), nil //nolint:forcetypeassert // JSON is text
	}, nil
}
