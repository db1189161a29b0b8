// Package dubbogo makes the mesh, ZooKeeper or Nacos a registry of dubbo-go, at the level of
// interfaces and at that of applications. An application imports the package and names the
// registry by its address:
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

// Name is the protocol of a registry in the mesh. The protocols of others begin with it.
const Name = "xdsbridge"

func init() { //nolint:gochecknoinits // dubbo-go is extended by imports
	both := levels{Protocol: protocol.GetProtocol(), ours: make(map[string]bool), pool: new(adapter.Pool)}
	both.RegistryFactory, _ = both.Protocol.(registry.RegistryFactory)
	extension.SetProtocol(constant.RegistryProtocol, func() base.Protocol { return both })
	for name, scheme := range map[string]string{
		// dubbo-go's own registry in the mesh was called xds until 3.3.0.
		Name: "mesh", "xds": "mesh", Name + "-zookeeper": "zookeeper", Name + "-nacos": "nacos",
	} {
		for _, tls := range []string{"", "+tls"} {
			both.add(name+tls, func(u *common.URL) (*client.Client, error) { return openURL(both.pool, scheme+tls, u) })
		}
	}
	both.add(Name+"-client", func(u *common.URL) (*client.Client, error) { return both.pool.Open(u.Ip, client.Options{}) })
	extension.AddCustomShutdownCallback(both.pool.Close) // dubbo-go does not destroy registries when it shuts down
	extension.SetRouterFactory(Name, func() router.PriorityRouterFactory { return routing{} })
	cluster.SetClusterInterceptor(Name, func() cluster.Interceptor { return routing{} })
}

// Use makes a client a registry of dubbo-go, and returns the address of that registry. Destroying
// the registry closes the client.
func Use(c *client.Client) (address string) {
	return Name + "-client://" + extension.GetProtocol(constant.RegistryProtocol).(levels).pool.Add(c) + ":0" //nolint:forcetypeassert // see init
}

// add adds a protocol for registries at both levels.
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
