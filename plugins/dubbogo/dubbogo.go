// Package dubbogo makes the mesh, ZooKeeper or Nacos a registry of dubbo-go, by
// interface and by application. An application imports it and names it in the
// registry's address:
//
//	import _ "github.com/xds-bridge/xds-bridge/plugins/dubbogo"
//
//	registries:
//	  shop: { address: "xds://istiod.istio-system.svc:15010" }
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
)

// Name is the protocol of a registry in the mesh, and begins those of others.
const Name = "xdsbridge"

func init() { //nolint:gochecknoinits // dubbo-go is extended by imports
	both, pool := levels{Protocol: protocol.GetProtocol(), ours: make(map[string]bool)}, new(client.Pool)
	both.RegistryFactory, _ = both.Protocol.(registry.RegistryFactory)
	extension.SetProtocol(constant.RegistryProtocol, func() base.Protocol { return both })
	for name, scheme := range map[string]string{
		Name: "mesh", Name + "-zookeeper": "zookeeper", Name + "-nacos": "nacos",
		"xds": "mesh", // as dubbo-go's own was called until 3.3.0
	} {
		for _, tls := range []string{"", "+tls"} {
			add(name+tls, func(u *common.URL) (*client.Client, error) { return opened(pool, scheme+tls, u) })
		}
	}
	extension.AddCustomShutdownCallback(pool.Close) // dubbo-go destroys no registry when it shuts down
	extension.SetRouterFactory(Name, func() router.PriorityRouterFactory { return routing{} })
	cluster.SetClusterInterceptor(Name, func() cluster.Interceptor { return routing{} })
}

// Use makes a client a registry of dubbo-go, under the name of a protocol of the program's choice;
// the registry's address says nothing then. Destroy closes the client. Use is called
// before dubbo-go starts.
func Use(name string, c *client.Client) {
	add(name, func(*common.URL) (*client.Client, error) { return c, nil })
}

// add adds a protocol for registries of both levels.
func add(name string, open func(*common.URL) (*client.Client, error)) {
	if both, ok := extension.GetProtocol(constant.RegistryProtocol).(levels); ok {
		both.ours[name] = true
	}
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
