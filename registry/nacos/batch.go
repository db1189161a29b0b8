package nacos

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A batch is everything that a connection publishes for one service: instances in canonical
// form.
type batch []string

func newBatch(entries []registry.Entry) batch {
	b := make(batch, 0, len(entries))
	for _, e := range entries {
		if !registry.IsPart(e.Key) {
			b = append(b, e.Value)
		}
	}
	return b
}

// checkInstance returns why a server would refuse an entry; nil for a part.
func checkInstance(e registry.Entry) error {
	if registry.IsPart(e.Key) {
		return nil
	}
	in, err := metadata.ParseNacosInstance(e.Value)
	if err != nil {
		return err
	}
	return in.Check()
}

// request returns the request that publishes a batch.
func (b batch) request(k serviceKey) rpc_request.IRequest {
	if len(b) == 0 {
		// Any instance withdraws the whole publication.
		one := model.Instance{Ip: "127.0.0.1", Port: 1, Ephemeral: true, ClusterName: metadata.DefaultNacosCluster}
		return rpc_request.NewInstanceRequest(onWire(k.namespace), k.name, k.group, "deregisterInstance", one)
	}
	instances := make([]json.RawMessage, len(b))
	for i, text := range b {
		instances[i] = withID(text, k)
	}
	naming := rpc_request.NewNamingRequest(onWire(k.namespace), k.name, k.group)
	return &batchRequest{naming, "batchRegisterInstance", instances}
}

// withID returns an instance in wire format, with the id that a server gives an instance. Some
// servers give none to the instances of a batch. Consumers of Kratos select from more than
// 25 instances by id, so that without ids one instance would get all calls.
func withID(text string, k serviceKey) json.RawMessage {
	in, err := metadata.ParseNacosInstance(text)
	body, open := strings.CutSuffix(text, "}")
	if err != nil || !open {
		return json.RawMessage(text) // checkInstance refused it
	}
	parts := []string{in.IP, strconv.Itoa(int(in.Port)), in.Cluster, k.group + "@@" + k.name}
	id, err := json.Marshal(strings.Join(parts, "#"))
	if err != nil {
		return json.RawMessage(text) // strings can always be encoded
	}
	return slices.Concat(json.RawMessage(body+`,"instanceId":`), id, json.RawMessage("}"))
}
