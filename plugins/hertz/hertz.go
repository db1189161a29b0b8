// Package hertz is a registry for Hertz through the mesh, ZooKeeper or Nacos. It implements
// registry.Registry for servers and discovery.Resolver for clients.
package hertz

import (
	"context"
	"errors"
	"fmt"
	"time"

	hclient "github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/client/discovery"
	"github.com/cloudwego/hertz/pkg/app/client/loadbalance"
	"github.com/cloudwego/hertz/pkg/app/middlewares/client/sd"
	hertz "github.com/cloudwego/hertz/pkg/app/server/registry"
	"github.com/cloudwego/hertz/pkg/common/hlog"

	"github.com/xds-bridge/xds-bridge/metadata/cloudwego"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// Open is client.Open with the formats of Hertz's own registries as defaults.
func Open(url string, o client.Options, kinds ...client.Kind) (*client.Client, error) {
	return adapter.Open(url, o, map[string]string{"zookeeper": cloudwego.Hertz, "nacos": cloudwego.Hertz}, kinds...)
}

// Registry implements registry.Registry.
type Registry struct{ registry client.Registry }

// NewRegistry returns a registry for server.WithRegistry that uses a client, and does not close it.
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

// Deregister implements registry.Registry. It returns when no consumer sees the server any more,
// or after 10 s. If it cannot confirm the removal, it only logs that, because Hertz would cut off
// requests in flight after an error.
func (r *Registry) Deregister(info *hertz.Info) error {
	i, err := instanceOf(info)
	if err != nil {
		return err
	}
	if err := r.registry.Deregister(context.Background(), i); err != nil {
		hlog.Warnf("deregister %s incomplete, consumers may still call it: %v", info.ServiceName, err)
	}
	return nil
}

func instanceOf(info *hertz.Info) (client.Instance, error) {
	if info == nil || info.Addr == nil {
		return client.Instance{}, errors.New("the server has no address")
	}
	host, port, err := client.Reachable(info.Addr.String())
	if err != nil {
		return client.Instance{}, fmt.Errorf("server %s: %w", info.ServiceName, err)
	}
	return client.Instance{
		Application: info.ServiceName, Host: host, Port: port, Protocol: "http", Metadata: info.Tags,
		Weight: adapter.Weight(convert.CloudWeGo().Share(float64(info.Weight))),
	}, nil
}

// Resolver implements discovery.Resolver.
type Resolver struct{ registry client.Registry }

// refresh is how often Hertz repeats a query, which is cheap because the answer is kept up to
// date. It must be shorter than client.Options.DrainDelay, for which a server still serves.
const refresh = 500 * time.Millisecond

// Discovery returns the middleware by which a Hertz client finds servers. It does not close the
// registry's client.
func Discovery(r client.Registry) hclient.Middleware {
	return sd.Discovery(NewResolver(r), sd.WithLoadBalanceOptions(loadbalance.NewWeightedBalancer(),
		loadbalance.Options{RefreshInterval: refresh, ExpireInterval: loadbalance.DefaultExpireInterval}))
}

// NewResolver returns a resolver for sd.Discovery that uses a client, and does not close it.
func NewResolver(r client.Registry) *Resolver { return &Resolver{r} }

// Name implements discovery.Resolver.
func (*Resolver) Name() string { return "xdsbridge" }

// Target implements discovery.Resolver: services are looked up by name.
func (*Resolver) Target(_ context.Context, target *discovery.TargetInfo) string { return target.Host }

// firstAnswerWait bounds how long Resolve waits for a first answer. Hertz refreshes all names one
// after another in one goroutine, so that an unknown name delays the others.
const firstAnswerWait = time.Second

// Resolve implements discovery.Resolver. The first call waits until the answer is known, but not
// longer than a second. Repeated calls are cheap.
func (r *Resolver) Resolve(ctx context.Context, name string) (discovery.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswerWait)
	defer cancel()
	s, err := r.registry.Resolve(ctx, client.Named(name))
	if err != nil {
		return discovery.Result{}, fmt.Errorf("resolve %s: %w", name, err)
	}
	out := discovery.Result{CacheKey: name}
	for _, e := range s.Endpoints {
		weight := int(convert.CloudWeGo().Of(max(adapter.Share(e.Weight), 1)))
		out.Instances = append(out.Instances, discovery.NewInstance("tcp", e.Address(), weight, e.Attributes()))
	}
	return out, nil
}
