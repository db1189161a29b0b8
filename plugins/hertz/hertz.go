// Package hertz is a registry for Hertz over the mesh, ZooKeeper or Nacos: it
// implements registry.Registry for servers and discovery.Resolver for clients.
package hertz

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/cloudwego/hertz/pkg/app/client/discovery"
	hertz "github.com/cloudwego/hertz/pkg/app/server/registry"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// drain is how long Deregister waits for consumers at most.
const drain = 10 * time.Second

// Registry implements registry.Registry.
type Registry struct{ registry client.Registry }

// NewRegistry returns a registry for server.WithRegistry over a client, which
// stays the caller's.
func NewRegistry(r client.Registry) *Registry { return &Registry{r} }

// Register implements registry.Registry.
func (r *Registry) Register(info *hertz.Info) error {
	i, err := instanceOf(info)
	if err != nil {
		return err
	}
	if err := r.registry.Register(i); err != nil {
		return fmt.Errorf("register %s: %w", info.ServiceName, err)
	}
	return nil
}

// Deregister implements registry.Registry. It returns once no consumer sees the
// server any more, or after 10 s.
func (r *Registry) Deregister(info *hertz.Info) error {
	i, err := instanceOf(info)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := r.registry.Deregister(ctx, i); err != nil {
		return fmt.Errorf("deregister %s: %w", info.ServiceName, err)
	}
	return nil
}

func instanceOf(info *hertz.Info) (client.Instance, error) {
	host, port, err := client.Reachable(info.Addr.String())
	if err != nil {
		return client.Instance{}, fmt.Errorf("server %s: %w", info.ServiceName, err)
	}
	return client.Instance{
		Application: info.ServiceName, Host: host, Port: port, Protocol: "http", Weight: uint32(max(info.Weight, 0)), Metadata: info.Tags,
	}, nil
}

// Resolver implements discovery.Resolver.
type Resolver struct{ registry client.Registry }

// NewResolver returns a resolver for sd.Discovery over a client, which stays the
// caller's.
func NewResolver(r client.Registry) *Resolver { return &Resolver{r} }

// Name implements discovery.Resolver.
func (*Resolver) Name() string { return "xdsbridge" }

// Target implements discovery.Resolver: services are looked up by name.
func (*Resolver) Target(_ context.Context, target *discovery.TargetInfo) string { return target.Host }

// Resolve implements discovery.Resolver. The first call waits until the answer is
// known, further ones cost nothing.
func (r *Resolver) Resolve(ctx context.Context, name string) (discovery.Result, error) {
	s, err := r.registry.Resolve(ctx, client.Named(name))
	if err != nil {
		return discovery.Result{}, fmt.Errorf("resolve %s: %w", name, err)
	}
	out := discovery.Result{CacheKey: name}
	for _, e := range s.Endpoints {
		tags := make(map[string]string, len(e.Attributes)+len(e.Service.Attributes))
		for _, m := range []map[string]string{e.Service.Attributes, e.Attributes} {
			maps.Copy(tags, m)
		}
		out.Instances = append(out.Instances, discovery.NewInstance("tcp", e.Address(), int(e.Weight), tags))
	}
	return out, nil
}
