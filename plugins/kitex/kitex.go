// Package kitex is a registry for Kitex through the mesh, ZooKeeper or Nacos. It implements
// registry.Registry for servers and discovery.Resolver for clients.
package kitex

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	kclient "github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/discovery"
	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/kitex/pkg/loadbalance"
	"github.com/cloudwego/kitex/pkg/loadbalance/lbcache"
	kitex "github.com/cloudwego/kitex/pkg/registry"
	"github.com/cloudwego/kitex/pkg/rpcinfo"

	"github.com/xds-bridge/xds-bridge/metadata/cloudwego"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// Open is client.Open with the formats of Kitex's own registries as defaults.
func Open(url string, o client.Options, kinds ...client.Kind) (*client.Client, error) {
	return adapter.Open(url, o, map[string]string{"zookeeper": cloudwego.Kitex, "nacos": cloudwego.Kitex}, kinds...)
}

// Registry implements registry.Registry.
type Registry struct{ registry client.Registry }

// NewRegistry returns a registry for server.WithRegistry that uses a client, and does not close it.
func NewRegistry(r client.Registry) *Registry { return &Registry{r} }

// Register implements registry.Registry.
func (r *Registry) Register(info *kitex.Info) error {
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
// or after 10 s. If it cannot confirm the removal, it only logs that, because Kitex would report an
// error as one of its server.
func (r *Registry) Deregister(info *kitex.Info) error {
	i, err := instanceOf(info)
	if err != nil {
		return err
	}
	if err := r.registry.Deregister(context.Background(), i); err != nil {
		klog.Warnf("deregister %s incomplete, consumers may still call it: %v", info.ServiceName, err)
	}
	return nil
}

// instanceOf returns the instance of a server. The protocol follows from the payload: thrift, or
// protobuf, which Kitex also serves over gRPC.
func instanceOf(info *kitex.Info) (client.Instance, error) {
	if info == nil || info.Addr == nil {
		return client.Instance{}, errors.New("the server has no address")
	}
	host, port, err := client.Reachable(info.Addr.String())
	if err != nil {
		return client.Instance{}, fmt.Errorf("server %s: %w", info.ServiceName, err)
	}
	protocol := "thrift"
	if strings.EqualFold(info.PayloadCodec, "protobuf") {
		protocol = "grpc"
	}
	return client.Instance{
		Application: info.ServiceName, Host: host, Port: port, Protocol: protocol, Metadata: info.Tags,
		Weight: adapter.Weight(convert.CloudWeGo().Share(float64(info.Weight))),
	}, nil
}

// Resolver implements discovery.Resolver.
type Resolver struct{ registry client.Registry }

// NewResolver returns a resolver for client.WithResolver that uses a client, and does not close
// it. Discovery also sets a balancer that follows weights and changes.
func NewResolver(r client.Registry) *Resolver { return &Resolver{r} }

// refresh is how often Kitex repeats a query, which is cheap because the answer is kept up to
// date. It must be shorter than client.Options.DrainDelay, for which a server still serves.
// Kitex's default of 5 s is not.
const refresh = 500 * time.Millisecond

// Discovery returns the option by which a Kitex client finds servers and balances calls between
// them by weight. It does not close the registry's client.
func Discovery(r client.Registry) kclient.Option {
	return kclient.WithSuite(suite{NewResolver(r)})
}

type suite struct{ resolver *Resolver }

// Options implements client.Suite.
func (s suite) Options() []kclient.Option {
	return []kclient.Option{
		kclient.WithResolver(s.resolver),
		kclient.WithLoadBalancer(loadbalance.NewWeightedBalancer(), &lbcache.Options{RefreshInterval: refresh}),
	}
}

// Name implements discovery.Resolver.
func (*Resolver) Name() string { return "xdsbridge" }

// Target implements discovery.Resolver: services are looked up by name.
func (*Resolver) Target(_ context.Context, target rpcinfo.EndpointInfo) string {
	return target.ServiceName()
}

// Diff implements discovery.Resolver. Kitex rebalances if an address, a weight or a tag differs.
func (*Resolver) Diff(key string, before, after discovery.Result) (discovery.Change, bool) {
	change, _ := discovery.DefaultDiff(key, before, after)
	change.Updated = nil
	old := make(map[string]discovery.Instance, len(before.Instances))
	for _, i := range before.Instances {
		old[i.Address().String()] = i
	}
	for _, i := range after.Instances {
		previous, known := old[i.Address().String()]
		if known && (previous.Weight() != i.Weight() || !maps.Equal(tagsOf(previous), tagsOf(i))) {
			change.Updated = append(change.Updated, i)
		}
	}
	return change, len(change.Added)+len(change.Updated)+len(change.Removed) > 0
}

// tagsOf returns the tags of an instance that Resolve made.
func tagsOf(i discovery.Instance) map[string]string {
	if tagged, ok := i.(interface{ Tags() map[string]string }); ok {
		return tagged.Tags()
	}
	return nil
}

// firstAnswerWait bounds how long Resolve waits for a first answer.
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
	out := discovery.Result{Cacheable: true, CacheKey: name}
	for _, e := range s.Endpoints {
		weight := int(convert.CloudWeGo().Of(max(adapter.Share(e.Weight), 1)))
		out.Instances = append(out.Instances, discovery.NewInstance("tcp", e.Address(), weight, e.Attributes()))
	}
	return out, nil
}
