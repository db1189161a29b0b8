package dubbogo

import (
	"cmp"

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
// registry.ServiceDiscovery. Consumers ask it for an interface by a name that keys
// makes, or for an application.
type applications struct{ opened }

// String implements registry.ServiceDiscovery.
func (a applications) String() string { return Name + "(" + a.url.Location + ")" }

// Destroy implements registry.ServiceDiscovery.
func (a applications) Destroy() error {
	a.Close()
	return nil
}

// Register implements registry.ServiceDiscovery. What the instance provides is
// registered interface by interface, which consumers of both levels find.
func (a applications) Register(i registry.ServiceInstance) error { return each(i, a.Lease.Register) }

// Update implements registry.ServiceDiscovery.
func (a applications) Update(i registry.ServiceInstance) error { return a.Register(i) }

// Unregister implements registry.ServiceDiscovery. It returns once no consumer sees
// the instance any more, or after 10 s for all of them together.
func (a applications) Unregister(i registry.ServiceInstance) error {
	return each(i, func(one client.Instance) error {
		if a.Provides(one) {
			a.takeBack(one)
		}
		return nil
	})
}

// each does something with everything that an instance provides at its port, or with
// its application where it tells of no interface.
func each(i registry.ServiceInstance, do func(client.Instance) error) error {
	if i == nil {
		return errNothing
	}
	if i.GetServiceMetadata() == nil {
		return do(client.Instance{
			Application: i.GetServiceName(), Host: i.GetHost(), Port: uint16(i.GetPort()), Metadata: i.GetMetadata(), //nolint:gosec // a port
		})
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

// GetServices implements registry.ServiceDiscovery: the applications that this
// process provides. No registry is listed.
func (a applications) GetServices() *gxset.HashSet {
	all := gxset.NewSet()
	if c, err := a.Client(); err == nil {
		for _, i := range c.Status().Instances {
			all.Add(i.Application)
		}
	}
	return all
}

// GetInstances implements registry.ServiceDiscovery. It waits for a first answer as
// long as the registry's timeout.
func (a applications) GetInstances(name string) []registry.ServiceInstance {
	s, err := a.Resolve(queryOf(name), a.timeout)
	if err != nil {
		logger.Warnf("%s: nobody is known yet: %v", name, err)
	}
	return foundIn(s, name)
}

// AddListener implements registry.ServiceDiscovery. It returns at once.
func (a applications) AddListener(l registry.ServiceInstancesChangedListener) error {
	for _, one := range l.GetServiceNames().Values() {
		name, _ := one.(string)
		_, err := a.Follow(queryOf(name), func(s client.Snapshot) {
			if err := l.OnEvent(registry.NewServiceInstancesChangedEvent(name, foundIn(s, name))); err != nil {
				logger.Warnf("%s: %v", name, err)
			}
		})
		if err != nil {
			return err //nolint:wrapcheck // it says closed
		}
	}
	return nil
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
	answer   client.Snapshot
	endpoint client.Endpoint
	of       xds.Interface
}

// foundIn returns the instances in an answer, each as many times as it provides
// interfaces that were asked for: dubbo-go mixes up instances that provide
// different ones.
func foundIn(s client.Snapshot, name string) (all []registry.ServiceInstance) {
	for _, e := range s.Callable() {
		for _, i := range e.Service.Interfaces {
			if s.Query == client.Named(name) || s.Query == client.ByKey(client.KeyOf(i)) {
				all = append(all, &instance{registry.DefaultServiceInstance{
					ID: e.Address(), ServiceName: name, Host: e.Host, Port: int(e.Port), Weight: int64(e.Weight),
					Enable: true, Healthy: true, Metadata: describe(i, e.Scheme()),
				}, s, e, i})
			}
		}
	}
	return all
}

// ToURLs implements registry.ServiceInstance.
func (i *instance) ToURLs(service *info.ServiceInfo) []*common.URL {
	return []*common.URL{urlOf(i.answer, i.endpoint, asked{i.of, service.Protocol})}
}
