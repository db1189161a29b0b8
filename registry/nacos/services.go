package nacos

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// An asker sends requests: a connection, or a Client over its current connection.
type asker interface {
	ask(ctx context.Context, r rpc_request.IRequest, out answer) error
}

// publicNamespace is the id of the namespace that a configuration leaves empty. All clients
// send it. For a server an empty id is another namespace, which has no readers.
const publicNamespace = "public"

func onWire(namespace string) string { return cmp.Or(namespace, publicNamespace) }

func instancesOf(all []model.Instance) []metadata.NacosInstance {
	list := make([]metadata.NacosInstance, 0, len(all))
	for _, m := range all {
		list = append(list, fromModel(m))
	}
	return list
}

func fromModel(m model.Instance) metadata.NacosInstance {
	return metadata.NacosInstance{
		IP: m.Ip, Port: uint16(m.Port), Weight: m.Weight, Healthy: m.Healthy, Enabled: m.Enable, //nolint:gosec // a port
		Ephemeral: m.Ephemeral, Cluster: m.ClusterName, Metadata: m.Metadata,
	}
}

// query reads the instances of a service, of all connections; none if the service does not
// exist. The server answers from a cache, which follows a write within a second.
func query(ctx context.Context, over asker, k serviceKey) (*model.Service, error) {
	return serviceOf(ctx, over, rpc_request.NewServiceQueryRequest(onWire(k.namespace), k.name, k.group, "", false, 0))
}

// subscribe reads as query does, and requests pushes of every change over the same connection.
// It may be repeated.
func subscribe(ctx context.Context, over asker, k serviceKey) (*model.Service, error) {
	return serviceOf(ctx, over, rpc_request.NewSubscribeServiceRequest(onWire(k.namespace), k.name, k.group, "", true))
}

// queryHealthy reads the healthy instances of a service. Other answers show all instances as
// healthy while the service is protected, which is while the share of healthy instances is
// not above the protection threshold. Servers before 2.0.4 do so here as well.
func queryHealthy(ctx context.Context, over asker, k serviceKey) (*model.Service, error) {
	return serviceOf(ctx, over, rpc_request.NewServiceQueryRequest(onWire(k.namespace), k.name, k.group, "", true, 0))
}

func unsubscribe(ctx context.Context, over asker, k serviceKey) error {
	r := rpc_request.NewSubscribeServiceRequest(onWire(k.namespace), k.name, k.group, "", false)
	return over.ask(ctx, r, &response{})
}

func serviceOf(ctx context.Context, over asker, r rpc_request.IRequest) (*model.Service, error) {
	var out serviceAnswer
	if err := over.ask(ctx, r, &out); err != nil {
		return nil, err
	}
	if out.ServiceInfo == nil {
		return nil, fmt.Errorf("nacos %s: the answer has no serviceInfo", r.GetRequestType())
	}
	return out.ServiceInfo, nil
}

// A page is a part of a list of services.
type page struct {
	response

	Count        int      `json:"count"` // of all pages
	ServiceNames []string `json:"serviceNames"`
}

// listNames returns the names of the services of a namespace and group.
func listNames(ctx context.Context, over asker, namespace, group string) ([]string, error) {
	return listAll(func(number, size int) (page, error) {
		var p page
		err := over.ask(ctx, rpc_request.NewServiceListRequest(onWire(namespace), "", group, number, size, ""), &p)
		return p, err
	})
}

// listAll returns the names of all services. It requests one page, because a server sorts all
// services for each page. If the server sends fewer names, the others are requested in pages
// of that size.
//
// One page is complete if it has as many different names as its count. Several pages are
// complete only if a second read returns the same: a service that is deleted between two
// pages moves another service to a page that was read before, and a new service hides that
// in the count.
func listAll(ask func(number, size int) (page, error)) ([]string, error) {
	const tries, all = 4, 1_000_000
	var before []string
	n := 0
	for range tries {
		names, pages, err := listOnce(ask, all)
		if err != nil {
			return nil, err
		}
		n = len(names)
		if pages == 1 || pages > 1 && slices.Equal(names, before) {
			return names, nil
		}
		before = nil
		if pages > 1 {
			before = names
		}
	}
	return nil, fmt.Errorf("nacos ServiceListRequest: %d services listed, but the server counts another number, "+
		"or lists others each time; a partial list is not used", n)
}

// listOnce reads all pages. It returns the names and the number of pages; 0 if they are not
// complete.
func listOnce(ask func(number, size int) (page, error), size int) ([]string, int, error) {
	first, err := ask(1, size)
	if err != nil {
		return nil, 0, err
	}
	names := first.ServiceNames
	seen := make(map[string]struct{}, len(names))
	for number, p := 1, first; ; {
		for _, name := range p.ServiceNames {
			seen[name] = struct{}{}
		}
		switch {
		case len(seen) != len(names), len(names) > first.Count, len(p.ServiceNames) == 0 && len(names) < first.Count:
			return names, 0, nil
		case len(names) == first.Count:
			return names, number, nil
		}
		number++
		if p, err = ask(number, len(first.ServiceNames)); err != nil {
			return nil, 0, err
		}
		names = append(names, p.ServiceNames...)
	}
}
