// Package dubbogo makes the mesh, ZooKeeper or Nacos a registry of dubbo-go, by
// interface and by application. An application imports it and names it in the
// registry's address:
//
//	import _ "github.com/xds-bridge/xds-bridge/plugins/dubbogo"
//
//	registries:
//	  shop: { address: "xdsbridge-zookeeper://10.1.0.1:2181" }
//
// docs/plugins.md lists the protocols and their parameters.
package dubbogo

import (
	"fmt"
	"time"

	"dubbo.apache.org/dubbo-go/v3/cluster/cluster"
	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/registry/protocol"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// Name is the protocol of a registry in the mesh, and begins those of others.
const Name = "xdsbridge"

func init() { //nolint:gochecknoinits // dubbo-go is extended by imports
	both := levels{Protocol: protocol.GetProtocol(), ours: make(map[string]bool), pool: new(adapter.Pool)}
	both.RegistryFactory, _ = both.Protocol.(registry.RegistryFactory)
	extension.SetProtocol(constant.RegistryProtocol, func() base.Protocol { return both })
	for name, scheme := range map[string]string{
		Name: "mesh", "xds": "mesh", Name + "-zookeeper": "zookeeper", Name + "-nacos": "nacos", // dubbo-go's own was xds until 3.3.0
	} {
		for _, tls := range []string{"", "+tls"} {
			both.add(name+tls, func(u *common.URL) (*client.Client, error) { return opened(both.pool, scheme+tls, u) })
		}
	}
	both.add(Name+"-client", func(u *common.URL) (*client.Client, error) { return both.pool.Open(u.Ip, client.Options{}) })
	extension.AddCustomShutdownCallback(both.pool.Close) // dubbo-go destroys no registry when it shuts down
	extension.SetRouterFactory(Name, func() router.PriorityRouterFactory { return routing{} })
	cluster.SetClusterInterceptor(Name, func() cluster.Interceptor { return routing{} })
}

// Use makes a client a registry of dubbo-go, and returns the address by which it is
// named. Destroy closes the client.
func Use(c *client.Client) (address string) {
	return Name + "-client://" + extension.GetProtocol(constant.RegistryProtocol).(levels).pool.Add(c) + ":0" //nolint:forcetypeassert // see init
}

// add adds a protocol for registries of both levels.
func (l levels) add(name string, open func(*common.URL) (*client.Client, error)) {
	l.ours[name] = true
	extension.SetRegistry(name, func(u *common.URL) (registry.Registry, error) {
		timeout, err := time.ParseDuration(u.GetParam(constant.RegistryTimeoutKey, constant.DefaultRegTimeout))
		if err != nil {
			return nil, fmt.Errorf("registry %s: timeout: %w", name, err)
		}
		c, err := open(u)
		if err != nil {
			return nil, fmt.Errorf("registry %s: %w", name, err)
		}
		return &node{url: u, client: c, timeout: timeout}, nil
	})
}
