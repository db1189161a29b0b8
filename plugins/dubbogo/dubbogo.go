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
	"sync/atomic"

	"dubbo.apache.org/dubbo-go/v3/cluster/cluster"
	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/metadata/mapping"
	dubbos "dubbo.apache.org/dubbo-go/v3/metadata/mapping/metadata"
	"dubbo.apache.org/dubbo-go/v3/metadata/report"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/registry"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// Name is the protocol of a registry in the mesh, and begins those of others.
const Name = "xdsbridge"

func init() { //nolint:gochecknoinits // dubbo-go is extended by imports
	pool := new(client.Pool)
	for protocol, scheme := range map[string]string{
		Name: "mesh", Name + "-zookeeper": "zookeeper", Name + "-nacos": "nacos",
		"xds": "mesh", // as dubbo-go's own was called until 3.3.0
	} {
		for _, tls := range []string{"", "+tls"} {
			add(protocol+tls, func(u *common.URL) (*client.Client, error) { return opened(pool, scheme+tls, u) })
		}
	}
	extension.AddCustomShutdownCallback(pool.Close) // dubbo-go destroys no registry when it shuts down
	mapped := names{dubbos.GetNameMappingInstance(), new(atomic.Bool)}
	extension.SetGlobalServiceNameMapping(func() mapping.ServiceNameMapping { return mapped })
	extension.SetProtocol(described, func() base.Protocol { return describing{} })
	extension.SetRouterFactory(Name, func() router.PriorityRouterFactory { return routing{} })
	cluster.SetClusterInterceptor(Name, func() cluster.Interceptor { return routing{} })
}

// Use makes a client a registry of dubbo-go, under a protocol of the program's choice;
// the registry's address says nothing then. Destroy closes the client. Use is called
// before dubbo-go starts.
func Use(protocol string, c *client.Client) {
	add(protocol, func(*common.URL) (*client.Client, error) { return c, nil })
}

// add adds a protocol for registries of both levels.
func add(protocol string, open func(*common.URL) (*client.Client, error)) {
	extension.SetRegistry(protocol, func(u *common.URL) (registry.Registry, error) {
		n, err := newNode(u, open)
		if err != nil {
			return nil, fmt.Errorf("registry %s: %w", protocol, err)
		}
		return interfaces{n}, nil
	})
	extension.SetServiceDiscovery(protocol, func(u *common.URL) (registry.ServiceDiscovery, error) {
		if m, ok := extension.GetGlobalServiceNameMapping().(names); ok {
			m.used.Store(true)
		}
		n, err := newNode(u, open)
		if err != nil {
			return nil, fmt.Errorf("registry %s: %w", protocol, err)
		}
		return applications{n}, nil
	})
	extension.SetMetadataReportFactory(protocol, func() report.MetadataReportFactory { return reporting{} })
}
