// Command kratos is a server and a client of Kratos with Kratos' own registries.
package main

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/go-kratos/kratos/contrib/registry/nacos/v2"
	"github.com/go-kratos/kratos/contrib/registry/zookeeper/v2"
	"github.com/go-kratos/kratos/v2"
	"github.com/go-kratos/kratos/v2/registry"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	"github.com/nacos-group/nacos-sdk-go/clients"
	"github.com/nacos-group/nacos-sdk-go/common/constant"
	"github.com/nacos-group/nacos-sdk-go/vo"

	"github.com/xds-bridge/xds-bridge/integration/applications/program"
)

func main() { program.Program{Serve: serve, Dial: dial, List: list}.Main() }

// discoverer is what Kratos' own registries are.
type discoverer interface {
	registry.Registrar
	registry.Discovery
}

// draining is a registry by which a server continues until consumers have left it.
// Kratos itself ends at once.
type draining struct {
	discoverer
	drain time.Duration
}

// Deregister implements registry.Registrar.
func (s draining) Deregister(ctx context.Context, i *registry.ServiceInstance) error {
	err := s.discoverer.Deregister(ctx, i)
	<-time.NewTimer(s.drain).C
	return err
}

// registryOf returns the registry, and how a service is called there.
func registryOf(r *program.Registry, service string) (discoverer, string, error) {
	if !r.InNacos() {
		conn, err := r.ZooKeeper()
		if err != nil {
			return nil, "", err
		}
		return zookeeper.New(conn), service, nil
	}
	// It requires the first version of Nacos' client.
	client, err := clients.NewNamingClient(vo.NacosClientParam{
		ServerConfigs: []constant.ServerConfig{*constant.NewServerConfig(r.Host, r.Port)},
		ClientConfig: &constant.ClientConfig{
			NamespaceId: r.Namespace, NotLoadCacheAtStart: true, CacheDir: "cache", LogDir: "log", LogLevel: "warn",
		},
	})
	if err != nil {
		return nil, "", err
	}
	return nacos.New(client), service + ".grpc", nil
}

// serve ends as Kratos does, where it is asked to by a signal: its registry requires a
// server back but once.
func serve(_ context.Context, r *program.Registry, at program.Place) error {
	own, _, err := registryOf(r, at.Service)
	if err != nil {
		return err
	}
	server := kgrpc.NewServer(kgrpc.Address(at.Address))
	program.RegisterGreeter(server, at)
	if at.Weight > 0 {
		at.Tags["weight"] = strconv.Itoa(at.Weight)
	}
	app := kratos.New(kratos.Name(at.Service), kratos.Server(server), kratos.Metadata(at.Tags),
		kratos.Registrar(draining{own, at.Drain}), kratos.RegistrarTimeout(at.Drain+15*time.Second))
	return app.Run()
}

func dial(r *program.Registry, service string) (program.Call, error) {
	own, name, err := registryOf(r, service)
	if err != nil {
		return nil, err
	}
	conn, err := kgrpc.DialInsecure(context.Background(),
		kgrpc.WithEndpoint("discovery:///"+name), kgrpc.WithDiscovery(own), kgrpc.WithTimeout(0))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) { return program.Greet(ctx, conn) }, nil
}

// list reports what a consumer receives that watches, as those of Kratos do.
func list(ctx context.Context, r *program.Registry, service string) ([]program.Instance, error) {
	own, name, err := registryOf(r, service)
	if err != nil {
		return nil, err
	}
	watcher, err := own.Watch(ctx, name)
	if err != nil {
		return nil, err
	}
	found, err := watcher.Next()
	if err != nil {
		return nil, err
	}
	var all []program.Instance
	for _, i := range found {
		weight, _ := strconv.Atoi(i.Metadata["weight"]) // none is 0
		for _, text := range i.Endpoints {
			u, err := url.Parse(text)
			if err != nil {
				return nil, err
			}
			all = append(all, program.Instance{Address: u.Host, Weight: weight, Zone: i.Metadata["zone"]})
		}
	}
	return all, nil
}
