package frameworks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"sync"
	"testing"

	"github.com/cloudwego/hertz/pkg/app/client/discovery"
	"github.com/cloudwego/hertz/pkg/app/server/registry"
	kratos "github.com/go-kratos/kratos/v2/registry"
	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

// These replace the registries that Kratos and Hertz keep next to their
// frameworks, which integration/plugins tries: they implement the frameworks' own
// interfaces and write and read byte for byte what the real ones do, as captured.

// zooKratos is the registry of Kratos in ZooKeeper.
type zooKratos struct {
	t      testing.TB
	znodes *harness.Znodes
}

// Register implements kratos.Registrar.
func (z zooKratos) Register(_ context.Context, s *kratos.ServiceInstance) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	z.znodes.Create(z.t, path.Join("/microservices", s.Name, s.ID), string(data))
	return nil
}

// Deregister implements kratos.Registrar.
func (z zooKratos) Deregister(_ context.Context, s *kratos.ServiceInstance) error {
	z.znodes.Delete(z.t, path.Join("/microservices", s.Name, s.ID))
	return nil
}

// GetService implements kratos.Discovery. One node that is not JSON fails it.
func (z zooKratos) GetService(_ context.Context, name string) ([]*kratos.ServiceInstance, error) {
	var all []*kratos.ServiceInstance
	for at, n := range z.znodes.Tree(z.t, path.Join("/microservices", name)) {
		if at == path.Join("/microservices", name) {
			continue
		}
		s := new(kratos.ServiceInstance)
		if err := json.Unmarshal([]byte(n.Data), s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Watch implements kratos.Discovery.
func (z zooKratos) Watch(ctx context.Context, name string) (kratos.Watcher, error) {
	all, err := z.GetService(ctx, name)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no instances of %s", name)
	}
	return once(ctx, all), err
}

// subscriptions are those of one client of Nacos, which reports a service
// once however often it is asked for.
type subscriptions struct {
	*nacossdk.Client
	t testing.TB

	mu      sync.Mutex
	watches map[string]*nacossdk.Watch
}

func (s *subscriptions) instances(service string) []model.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[service] == nil {
		s.watches[service] = s.Subscribe(s.t, service)
	}
	return s.watches[service].Instances()
}

// nacosKratos is the registry of Kratos in Nacos.
type nacosKratos struct {
	t   testing.TB
	sdk *subscriptions
}

// Register implements kratos.Registrar.
func (n nacosKratos) Register(_ context.Context, s *kratos.ServiceInstance) error {
	for _, e := range s.Endpoints {
		u, err := url.Parse(e)
		if err != nil {
			return err
		}
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			return err
		}
		n.sdk.Register(n.t, s.Name+"."+u.Scheme, model.Instance{
			Ip: u.Hostname(), Port: port, Weight: 100, Enable: true, Healthy: true, Ephemeral: true,
			Metadata: map[string]string{"kind": u.Scheme, "version": s.Version},
		})
	}
	return nil
}

// Deregister implements kratos.Registrar.
func (nacosKratos) Deregister(context.Context, *kratos.ServiceInstance) error { return nil }

// GetService implements kratos.Discovery.
func (n nacosKratos) GetService(_ context.Context, name string) ([]*kratos.ServiceInstance, error) {
	var all []*kratos.ServiceInstance
	for _, in := range n.sdk.instances(name) {
		kind := in.Metadata["kind"]
		if kind == "" {
			kind = "grpc"
		}
		all = append(all, &kratos.ServiceInstance{
			ID: in.InstanceId, Name: name, Version: in.Metadata["version"], Metadata: in.Metadata,
			Endpoints: []string{fmt.Sprintf("%s://%s", kind, net.JoinHostPort(in.Ip, strconv.FormatUint(in.Port, 10)))},
		})
	}
	return all, nil
}

// Watch implements kratos.Discovery.
func (n nacosKratos) Watch(ctx context.Context, name string) (kratos.Watcher, error) {
	all, err := n.GetService(ctx, name)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no instances of %s", name)
	}
	return once(ctx, all), err
}

// snapshot is a watcher that reports one list.
type snapshot struct {
	ctx    context.Context //nolint:containedctx // Next has none
	cancel context.CancelFunc
	next   chan []*kratos.ServiceInstance
}

func once(ctx context.Context, all []*kratos.ServiceInstance) *snapshot {
	s := &snapshot{next: make(chan []*kratos.ServiceInstance, 1)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.next <- all
	return s
}

// Next implements kratos.Watcher.
func (s *snapshot) Next() ([]*kratos.ServiceInstance, error) {
	select {
	case all := <-s.next:
		return all, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// Stop implements kratos.Watcher.
func (s *snapshot) Stop() error { s.cancel(); return nil }

// zooHertz is the registry of Hertz in ZooKeeper.
type zooHertz struct {
	t      testing.TB
	znodes *harness.Znodes
}

type hertzNode struct {
	Weight int
	Tags   map[string]string
}

// Register implements registry.Registry.
func (z zooHertz) Register(info *registry.Info) error {
	data, err := json.Marshal(hertzNode{info.Weight, info.Tags})
	if err != nil {
		return err
	}
	z.znodes.Create(z.t, "/"+info.ServiceName+"/"+info.Addr.String(), string(data))
	return nil
}

// Deregister implements registry.Registry.
func (z zooHertz) Deregister(info *registry.Info) error {
	z.znodes.Delete(z.t, "/"+info.ServiceName+"/"+info.Addr.String())
	return nil
}

// resolver resolves as the registry of Hertz in ZooKeeper does: one node that
// is not JSON fails it.
func (z zooHertz) resolver() discovery.Resolver {
	return resolver("zookeeper", func(service string) ([]discovery.Instance, error) {
		var all []discovery.Instance
		for _, address := range z.znodes.Children(z.t, "/"+service) {
			var n hertzNode
			if err := json.Unmarshal([]byte(z.znodes.Tree(z.t, "/"+service)["/"+service+"/"+address].Data), &n); err != nil {
				return nil, err
			}
			all = append(all, discovery.NewInstance("tcp", address, n.Weight, n.Tags))
		}
		return all, nil
	})
}

// nacosHertz is the registry of Hertz in Nacos.
type nacosHertz struct {
	t   testing.TB
	sdk *subscriptions
}

// Register implements registry.Registry.
func (n nacosHertz) Register(info *registry.Info) error {
	host, text, err := net.SplitHostPort(info.Addr.String())
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return err
	}
	n.sdk.Register(n.t, info.ServiceName, model.Instance{
		Ip: host, Port: port, Weight: float64(info.Weight), Enable: true, Healthy: true, Ephemeral: true, Metadata: info.Tags,
	})
	return nil
}

// Deregister implements registry.Registry.
func (nacosHertz) Deregister(*registry.Info) error { return nil }

func (n nacosHertz) resolver() discovery.Resolver {
	return resolver("nacos", func(service string) ([]discovery.Instance, error) {
		var all []discovery.Instance
		for _, in := range n.sdk.instances(service) {
			all = append(all, discovery.NewInstance("tcp", net.JoinHostPort(in.Ip, strconv.FormatUint(in.Port, 10)), int(in.Weight), in.Metadata))
		}
		return all, nil
	})
}

func resolver(name string, resolve func(service string) ([]discovery.Instance, error)) discovery.Resolver {
	return discovery.SynthesizedResolver{
		NameFunc:   func() string { return name },
		TargetFunc: func(_ context.Context, t *discovery.TargetInfo) string { return t.Host },
		ResolveFunc: func(_ context.Context, service string) (discovery.Result, error) {
			all, err := resolve(service)
			return discovery.Result{CacheKey: service, Instances: all}, err
		},
	}
}
