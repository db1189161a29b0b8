package nacos

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// publish makes a batch the whole of what the connection publishes for a
// service; an empty one takes the publication back.
func (c *Client) publish(ctx context.Context, k serviceKey, b batch) error {
	cn, err := c.call(ctx, b.request(k), &response{})
	if cn != nil {
		cn.mu.Lock()
		defer cn.mu.Unlock()
		delete(cn.published, k) // unknown until it is known to have worked
		if err == nil && len(b) > 0 {
			cn.published[k] = b
		}
	}
	return err
}

// publication returns what the current connection published for a service.
func (c *Client) publication(k serviceKey) batch {
	c.mu.Lock()
	cn := c.current
	c.mu.Unlock()
	if cn == nil {
		return nil
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.published[k]
}

// query reads the instances of a service, whoever registered them; none for
// one that does not exist. The server answers from a cache that follows a
// write within a second.
func (c *Client) query(ctx context.Context, k serviceKey) ([]metadata.NacosInstance, error) {
	return c.instances(ctx, rpc_request.NewServiceQueryRequest(onWire(k.namespace), k.name, k.group, "", false, 0))
}

// subscribe asks as query does, and for pushes of every change on the current
// connection. It may be repeated.
func (c *Client) subscribe(ctx context.Context, k serviceKey) ([]metadata.NacosInstance, error) {
	return c.instances(ctx, rpc_request.NewSubscribeServiceRequest(onWire(k.namespace), k.name, k.group, "", true))
}

// unsubscribe ends the pushes.
func (c *Client) unsubscribe(ctx context.Context, k serviceKey) error {
	_, err := c.call(ctx, rpc_request.NewSubscribeServiceRequest(onWire(k.namespace), k.name, k.group, "", false), &response{})
	return err
}

func (c *Client) instances(ctx context.Context, r rpc_request.IRequest) ([]metadata.NacosInstance, error) {
	var out services
	if _, err := c.call(ctx, r, &out); err != nil {
		return nil, err
	}
	if out.ServiceInfo == nil {
		return nil, fmt.Errorf("nacos %s: the answer holds no serviceInfo", r.GetRequestType())
	}
	list := make([]metadata.NacosInstance, 0, len(out.ServiceInfo.Hosts))
	for _, h := range out.ServiceInfo.Hosts {
		list = append(list, fromModel(h))
	}
	return list, nil
}

// list returns the names of all services of a namespace and group.
func (c *Client) list(ctx context.Context, namespace, group string) ([]string, error) {
	return listNames(namespace, group, func(r rpc_request.IRequest, out answer) error {
		_, err := c.call(ctx, r, out)
		return err
	})
}

// publicNamespace is the id of the namespace that a configuration leaves empty.
// Every other client sends it, and a server takes an empty id for yet another
// namespace, which nobody looks into.
const publicNamespace = "public"

func onWire(namespace string) string { return cmp.Or(namespace, publicNamespace) }

func fromModel(m model.Instance) metadata.NacosInstance {
	return metadata.NacosInstance{
		IP: m.Ip, Port: uint16(m.Port), Weight: m.Weight, Healthy: m.Healthy, Enabled: m.Enable, //nolint:gosec // a port
		Ephemeral: m.Ephemeral, Cluster: m.ClusterName, Metadata: m.Metadata,
	}
}
