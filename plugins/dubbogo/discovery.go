package dubbogo

import (
	"cmp"
	"errors"
	"strings"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/metadata/info"
	"dubbo.apache.org/dubbo-go/v3/registry"
	gxset "github.com/dubbogo/gost/container/set"
	gxpage "github.com/dubbogo/gost/hash/page"
	"github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	xds "github.com/xds-bridge/xds-bridge/registry"
)

// applications is a registry by application. It implements
// registry.ServiceDiscovery. Consumers ask it for an interface by a name of the
// mapping, or for an application.
type applications struct{ *node }

// String implements registry.ServiceDiscovery.
func (a applications) String() string { return a.url.Protocol + "(" + a.url.Location + ")" }

// Destroy implements registry.ServiceDiscovery.
func (a applications) Destroy() error {
	a.node.Destroy()
	return nil
}

// Register implements registry.ServiceDiscovery. What the instance provides is
// registered interface by interface, which consumers of both levels find.
func (a applications) Register(i registry.ServiceInstance) error { return each(i, a.client.Register) }

// Update implements registry.ServiceDiscovery.
func (a applications) Update(i registry.ServiceInstance) error { return a.Register(i) }

// Unregister implements registry.ServiceDiscovery. It returns once no consumer sees
// the instance any more, or after 10 s for all of them together.
func (a applications) Unregister(i registry.ServiceInstance) error {
	return each(i, func(one client.Instance) error {
		if a.provides(one) { // and the registry by interface did not take it back
			a.unregister(one)
		}
		return nil
	})
}

// each does something with everything that an instance provides at its port.
func each(i registry.ServiceInstance, do func(client.Instance) error) error {
	if i == nil || i.GetServiceMetadata() == nil {
		return errNothing
	}
	for _, u := range i.GetServiceMetadata().GetExportedServiceURLs() {
		one, err := instanceOf(u)
		if err == nil && int(one.Port) == i.GetPort() {
			one.Application = cmp.Or(i.GetServiceName(), one.Application)
			err = do(one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// GetServices implements registry.ServiceDiscovery: what this process provides and
// follows, as no registry is listed. dubbo-go takes a registry without any for one
// that is not available.
func (a applications) GetServices() *gxset.HashSet {
	all := gxset.NewSet()
	status := a.client.Status()
	if !status.Available {
		return all
	}
	for _, i := range status.Instances {
		all.Add(i.Application)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for l := range a.watches {
		all.Add(l.name)
	}
	return all
}

// GetInstances implements registry.ServiceDiscovery. It waits for a first answer as
// long as the registry's timeout.
func (a applications) GetInstances(name string) []registry.ServiceInstance {
	return a.instancesIn(a.first(name), name)
}

// AddListener implements registry.ServiceDiscovery. It returns at once.
func (a applications) AddListener(l registry.ServiceInstancesChangedListener) (err error) {
	if l == nil {
		return errNothing
	}
	for _, one := range l.GetServiceNames().Values() {
		name, _ := one.(string)
		err = errors.Join(err, a.follow(listening{name, "", l}, func(s client.Snapshot) {
			if err := l.OnEvent(registry.NewServiceInstancesChangedEvent(name, a.instancesIn(s, name))); err != nil {
				logger.Warnf("%s: %v", name, err)
			}
		}))
	}
	return err
}

// GetDefaultPageSize implements registry.ServiceDiscovery.
func (applications) GetDefaultPageSize() int { return registry.DefaultPageSize }

// GetInstancesByPage implements registry.ServiceDiscovery.
func (a applications) GetInstancesByPage(name string, offset, size int) gxpage.Pager {
	return a.GetHealthyInstancesByPage(name, offset, size, true)
}

// GetHealthyInstancesByPage implements registry.ServiceDiscovery: all that are found
// are healthy.
func (a applications) GetHealthyInstancesByPage(name string, offset, size int, healthy bool) gxpage.Pager {
	all := a.GetInstances(name)
	var out []any
	for i := max(offset, 0); healthy && i < min(len(all), offset+size); i++ {
		out = append(out, all[i])
	}
	return gxpage.NewPage(offset, size, out, len(all))
}

// GetRequestInstances implements registry.ServiceDiscovery.
func (a applications) GetRequestInstances(names []string, offset, size int) map[string]gxpage.Pager {
	all := make(map[string]gxpage.Pager, len(names))
	for _, name := range names {
		all[name] = a.GetInstancesByPage(name, offset, size)
	}
	return all
}

// instance is an endpoint that provides one interface. It implements
// registry.ServiceInstance.
type instance struct {
	registry.DefaultServiceInstance
	client   *client.Client
	endpoint client.Endpoint
	of       xds.Interface
}

// instancesIn returns the instances in an answer, each as many times as it provides
// interfaces that were asked for: dubbo-go mixes up instances that provide different
// ones.
func (a applications) instancesIn(s client.Snapshot, name string) (all []registry.ServiceInstance) {
	for _, e := range s.Callable() {
		for _, i := range e.Service.Interfaces {
			if key := client.KeyOf(i).String(); !strings.HasPrefix(name, keyPrefix) || name == keyPrefix+key {
				all = append(all, &instance{registry.DefaultServiceInstance{
					ID: e.Address(), ServiceName: name, Host: e.Host, Port: int(e.Port), Weight: int64(e.Weight),
					Enable: true, Healthy: true, Metadata: describe(key, e.Scheme()),
				}, a.client, e, i})
			}
		}
	}
	return all
}

// ToURLs implements registry.ServiceInstance.
func (i *instance) ToURLs(service *info.ServiceInfo) []*common.URL {
	return []*common.URL{urlOf(i.client, i.endpoint, i.of, service.Protocol)}
}
