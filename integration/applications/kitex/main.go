// Command kitex is a server and a client of Kitex with Kitex' own registries.
package main

import (
	"context"
	"net"
	"time"

	kclient "github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/client/genericclient"
	"github.com/cloudwego/kitex/pkg/discovery"
	"github.com/cloudwego/kitex/pkg/generic"
	"github.com/cloudwego/kitex/pkg/registry"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/server/genericserver"
	nacosregistry "github.com/kitex-contrib/registry-nacos/v2/registry"
	nacosresolver "github.com/kitex-contrib/registry-nacos/v2/resolver"
	zookeeperregistry "github.com/kitex-contrib/registry-zookeeper/registry"
	zookeeperresolver "github.com/kitex-contrib/registry-zookeeper/resolver"

	"github.com/xds-bridge/xds-bridge/integration/applications/program"
)

const greeter = `
namespace go greeter
service Greeter { string Hello(1: string name) }
`

func main() { program.Program{Serve: serve, Dial: dial, List: list}.Main() }

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

// draining is a registry by which a server continues until consumers, which ask
// every five seconds, have left it. Kitex itself ends at once.
type draining struct {
	registry.Registry
	drain time.Duration
}

// Deregister implements registry.Registry.
func (s draining) Deregister(info *registry.Info) error {
	err := s.Registry.Deregister(info)
	<-time.NewTimer(s.drain).C
	return err
}

func registryOf(r *program.Registry) (registry.Registry, error) {
	if !r.InNacos() {
		return zookeeperregistry.NewZookeeperRegistry(r.Servers(), program.Session)
	}
	n, err := r.Nacos()
	if err != nil {
		return nil, err
	}
	return nacosregistry.NewNacosRegistry(n), nil
}

func resolverOf(r *program.Registry) (discovery.Resolver, error) {
	if !r.InNacos() {
		return zookeeperresolver.NewZookeeperResolver(r.Servers(), program.Session)
	}
	n, err := r.Nacos()
	if err != nil {
		return nil, err
	}
	return nacosresolver.NewNacosResolver(n), nil
}

func serve(ctx context.Context, r *program.Registry, at program.Place) error {
	address, err := net.ResolveTCPAddr("tcp", at.Address)
	if err != nil {
		return err
	}
	codec, err := thrift()
	if err != nil {
		return err
	}
	own, err := registryOf(r)
	if err != nil {
		return err
	}
	return genericserver.NewServer(&service{at.Answer()}, codec,
		server.WithServiceAddr(address), server.WithExitWaitTime(15*time.Second),
		server.WithServerBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: at.Service}),
		server.WithRegistry(draining{own, at.Drain}),
		server.WithRegistryInfo(&registry.Info{Weight: at.Weight, Tags: at.Tags}),
		server.WithExitSignal(func() <-chan error {
			ended := make(chan error)
			context.AfterFunc(ctx, func() { close(ended) })
			return ended
		})).Run()
}

func dial(r *program.Registry, service string) (program.Call, error) {
	codec, err := thrift()
	if err != nil {
		return nil, err
	}
	own, err := resolverOf(r)
	if err != nil {
		return nil, err
	}
	cli, err := genericclient.NewClient(service, codec, kclient.WithResolver(own), kclient.WithRPCTimeout(5*time.Second))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		answer, err := cli.GenericCall(ctx, "Hello", `"peer"`)
		if err != nil {
			return "", err
		}
		return answer.(string), nil //nolint:forcetypeassert // JSON is text
	}, nil
}

func list(ctx context.Context, r *program.Registry, service string) ([]program.Instance, error) {
	own, err := resolverOf(r)
	if err != nil {
		return nil, err
	}
	found, err := own.Resolve(ctx, service)
	if err != nil {
		return nil, err
	}
	var all []program.Instance
	for _, i := range found.Instances {
		zone, _ := i.Tag("zone")
		all = append(all, program.Instance{Address: i.Address().String(), Weight: i.Weight(), Zone: zone})
	}
	return all, nil
}
