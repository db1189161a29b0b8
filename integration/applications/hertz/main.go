// Command hertz is a server and a client of Hertz with Hertz' own registries.
package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	hclient "github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/client/discovery"
	"github.com/cloudwego/hertz/pkg/app/middlewares/client/sd"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/app/server/registry"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/hertz-contrib/registry/nacos/v2"
	"github.com/hertz-contrib/registry/zookeeper"

	"github.com/xds-bridge/xds-bridge/integration/applications/program"
)

func main() { program.Program{Serve: serve, Dial: dial, List: list}.Main() }

// draining is a registry by which a server continues until consumers, which ask
// every five seconds, have left it. Hertz itself ends at once.
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
		return zookeeper.NewZookeeperRegistry(r.Servers(), program.Session)
	}
	n, err := r.Nacos()
	if err != nil {
		return nil, err
	}
	return nacos.NewNacosRegistry(n), nil
}

func resolverOf(r *program.Registry) (discovery.Resolver, error) {
	if !r.InNacos() {
		return zookeeper.NewZookeeperResolver(r.Servers(), program.Session)
	}
	n, err := r.Nacos()
	if err != nil {
		return nil, err
	}
	return nacos.NewNacosResolver(n), nil
}

func serve(ctx context.Context, r *program.Registry, at program.Place) error {
	address, err := net.ResolveTCPAddr("tcp", at.Address)
	if err != nil {
		return err
	}
	own, err := registryOf(r)
	if err != nil {
		return err
	}
	h := server.New(server.WithHostPorts(at.Address), server.WithExitWaitTime(at.Drain+15*time.Second),
		server.WithRegistry(draining{own, at.Drain}, &registry.Info{ServiceName: at.Service, Addr: address, Weight: cmp.Or(at.Weight, registry.DefaultWeight), Tags: at.Tags}))
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

func dial(r *program.Registry, service string) (program.Call, error) {
	own, err := resolverOf(r)
	if err != nil {
		return nil, err
	}
	cli, err := hclient.NewClient()
	if err != nil {
		return nil, err
	}
	cli.Use(sd.Discovery(own))
	return func(ctx context.Context) (string, error) {
		status, body, err := cli.Get(ctx, nil, "http://"+service+"/hello", config.WithSD(true))
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		return string(body), err
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
