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
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"dubbo.apache.org/dubbo-go/v3/cluster/cluster"
	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
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
	leases := new(client.Leases)
	for protocol, scheme := range map[string]string{
		Name: "mesh", Name + "-tls": "mesh+tls", Name + "-zookeeper": "zookeeper", Name + "-nacos": "nacos",
		"xds": "mesh", "xds-tls": "mesh+tls", // as dubbo-go's own was called until 3.3.0
	} {
		register(protocol, func(u *common.URL) (*client.Lease, error) { return lease(leases, scheme, u) })
	}
	extension.AddCustomShutdownCallback(leases.Close) // dubbo-go destroys no registry when it shuts down
	extension.SetProtocol(described, func() base.Protocol { return describing{} })
	extension.SetGlobalServiceNameMapping(func() mapping.ServiceNameMapping { return keys{dubbos.GetNameMappingInstance()} })
	extension.SetRouterFactory(Name, func() router.PriorityRouterFactory { return routing{} })
	cluster.SetClusterInterceptor(Name, func() cluster.Interceptor { return routing{} })
}

// Use makes a client that a program made a registry of dubbo-go, under a protocol of
// the program's choice; the registry's address says nothing then. The client stays
// the program's. It is called before dubbo-go starts.
func Use(protocol string, c *client.Client) {
	register(protocol, func(*common.URL) (*client.Lease, error) { return client.LeaseOf(c), nil })
}

func register(protocol string, lease func(*common.URL) (*client.Lease, error)) {
	open := func(u *common.URL) (opened, error) {
		timeout, err := time.ParseDuration(u.GetParam(constant.RegistryTimeoutKey, constant.DefaultRegTimeout))
		if err != nil {
			return opened{}, fmt.Errorf("registry %s: timeout: %w", protocol, err)
		}
		l, err := lease(u)
		return opened{l, u, timeout}, err
	}
	extension.SetRegistry(protocol, func(u *common.URL) (registry.Registry, error) {
		o, err := open(u)
		return &interfaces{opened: o, watches: make(map[listening]*client.Watch)}, err
	})
	extension.SetServiceDiscovery(protocol, func(u *common.URL) (registry.ServiceDiscovery, error) {
		o, err := open(u)
		return applications{o}, err
	})
	extension.SetMetadataReportFactory(protocol, func() report.MetadataReportFactory { return reporting{} })
}

// opened is a registry as dubbo-go opened it. It does so for each service and each
// reference, and forgets all but the first: nothing is connected to before its use.
type opened struct {
	*client.Lease
	url     *common.URL
	timeout time.Duration // of a first answer
}

// settle is short, as dubbo-go goes on serving for a time of its own after it took
// a provider back, consumer-update-wait-time; drain is how long that takes at most.
const (
	settle = 10 * time.Millisecond
	drain  = 10 * time.Second
)

// lease returns the use of a client for the URL of a registry, of which the
// parameters are those of client.FromURL.
func lease(leases *client.Leases, scheme string, u *common.URL) (*client.Lease, error) {
	if u.Password != "" {
		return nil, errors.New("registry " + scheme + ": password: name the file that holds it as passwordFile in params")
	}
	values := make(url.Values)
	for name, all := range u.GetParams() {
		switch own, _, _ := strings.Cut(name, "."); {
		case own == constant.RegistryKey, name == constant.RegistrySimplifiedKey, name == constant.ClientNameKey, name == "stateFile", name == "backup":
		default:
			values[name] = all
		}
	}
	servers, path, _ := strings.Cut(u.Location, "/")
	servers = strings.Trim(servers+","+u.GetParam("backup", ""), ",")
	path = cmp.Or(path, strings.Trim(u.Path, "/"))
	group, namespace := u.GetParam(constant.RegistryGroupKey, ""), u.GetParam(constant.RegistryNamespaceKey, "")
	told := map[string]string{"namespace": namespace, "group": group}
	switch scheme {
	case "zookeeper":
		path, told = cmp.Or(path, strings.Trim(group, "/")), map[string]string{"user": u.Username}
	case "nacos":
		path, told = cmp.Or(path, namespace), map[string]string{"group": group, "username": u.Username}
	}
	for name, value := range told {
		if value != "" && !values.Has(name) {
			values.Set(name, value)
		}
	}
	client.SetProcess(scheme, values)
	log := Log(slog.LevelInfo)
	return leases.Lease(scheme+"://"+servers+"/"+path+"?"+values.Encode(), client.Options{StateFile: u.GetParam("stateFile", ""), Settle: settle, Log: log}) //nolint:wrapcheck // it names the registry
}
