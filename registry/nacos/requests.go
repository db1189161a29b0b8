package nacos

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// publish makes a batch the whole of what the connection publishes for a
// service; an empty one takes the publication back.
func (c *Client) publish(ctx context.Context, k serviceKey, b batch) error {
	var r rpc_request.IRequest = rpc_request.NewBatchInstanceRequest(onWire(k.namespace), k.name, k.group, "batchRegisterInstance", b.instances)
	if len(b.instances) == 0 {
		// Which instance is named does not matter: the publication goes whole.
		one := model.Instance{Ip: "127.0.0.1", Port: 1, Ephemeral: true, ClusterName: metadata.DefaultNacosCluster}
		r = rpc_request.NewInstanceRequest(onWire(k.namespace), k.name, k.group, "deregisterInstance", one)
	}
	cn, err := c.call(ctx, r, nil)
	if cn != nil {
		cn.mu.Lock()
		defer cn.mu.Unlock()
		delete(cn.published, k) // unknown until it is known to have worked
		if err == nil && len(b.instances) > 0 {
			cn.published[k] = b.text
		}
	}
	return err
}

// publication returns what the current connection published for a service, in
// the form of a batch.
func (c *Client) publication(k serviceKey) string {
	c.mu.Lock()
	cn := c.current
	c.mu.Unlock()
	if cn == nil {
		return ""
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.published[k]
}

// query reads the instances of a service, whoever registered them; none for
// one that does not exist. The server answers from a cache that follows a
// write within a second.
func (c *Client) query(ctx context.Context, k serviceKey) ([]metadata.NacosInstance, error) {
	var out struct {
		ServiceInfo *model.Service `json:"serviceInfo"`
	}
	if _, err := c.call(ctx, rpc_request.NewServiceQueryRequest(onWire(k.namespace), k.name, k.group, "", false, 0), &out); err != nil {
		return nil, err
	}
	if out.ServiceInfo == nil {
		return nil, errors.New("nacos ServiceQueryRequest: the answer holds no serviceInfo")
	}
	list := make([]metadata.NacosInstance, 0, len(out.ServiceInfo.Hosts))
	for _, h := range out.ServiceInfo.Hosts {
		list = append(list, fromModel(h))
	}
	return list, nil
}

// list returns the names of all services of a namespace and group. It asks
// for them in one page, because a server sorts everything anew for each.
func (c *Client) list(ctx context.Context, namespace, group string) ([]string, error) {
	const page = 1_000_000
	var out struct {
		Count        int      `json:"count"`
		ServiceNames []string `json:"serviceNames"`
	}
	if _, err := c.call(ctx, rpc_request.NewServiceListRequest(onWire(namespace), "", group, 1, page, ""), &out); err != nil {
		return nil, err
	}
	if out.Count != len(out.ServiceNames) {
		return nil, fmt.Errorf("nacos ServiceListRequest: %d of %d services told of: a partial list is none", len(out.ServiceNames), out.Count)
	}
	return out.ServiceNames, nil
}

// publicNamespace is the id of the namespace that a configuration leaves empty.
// Every other client sends it, and a server takes an empty id for yet another
// namespace, which nobody looks into.
const publicNamespace = "public"

func onWire(namespace string) string { return cmp.Or(namespace, publicNamespace) }

func toModel(i metadata.NacosInstance) model.Instance {
	return model.Instance{
		Ip: i.IP, Port: uint64(i.Port), Weight: i.Weight, Healthy: i.Healthy, Enable: i.Enabled,
		Ephemeral: i.Ephemeral, ClusterName: i.Cluster, Metadata: i.Metadata,
	}
}

func fromModel(m model.Instance) metadata.NacosInstance {
	return metadata.NacosInstance{
		IP: m.Ip, Port: uint16(m.Port), Weight: m.Weight, Healthy: m.Healthy, Enabled: m.Enable, //nolint:gosec // a port
		Ephemeral: m.Ephemeral, Cluster: m.ClusterName, Metadata: m.Metadata,
	}
}
