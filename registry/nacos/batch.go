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

// A batch is all that a connection publishes for one service: instances in
// canonical form.
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

// checkInstance returns why a server would refuse an entry that is an instance.
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

func (b batch) request(k serviceKey) rpc_request.IRequest {
	if len(b) == 0 {
		// The whole publication is withdrawn, whichever instance is named.
		one := model.Instance{Ip: "127.0.0.1", Port: 1, Ephemeral: true, ClusterName: metadata.DefaultNacosCluster}
		return rpc_request.NewInstanceRequest(onWire(k.namespace), k.name, k.group, "deregisterInstance", one)
	}
	instances := make([]json.RawMessage, len(b))
	for i, text := range b {
		instances[i] = withID(text, k)
	}
	return &batchRequest{rpc_request.NewNamingRequest(onWire(k.namespace), k.name, k.group), "batchRegisterInstance", instances}
}

// withID returns an instance in wire format, with the id that a server would
// give it. Not every server gives one to the instances of a batch. Kratos'
// consumers of more than 25 choose by id: without ids all calls go to one.
func withID(text string, k serviceKey) json.RawMessage {
	in, err := metadata.ParseNacosInstance(text)
	body, open := strings.CutSuffix(text, "}")
	if err != nil || !open {
		return json.RawMessage(text) // checkInstance refuses these
	}
	id, err := json.Marshal(strings.Join([]string{in.IP, strconv.Itoa(int(in.Port)), in.Cluster, k.group + "@@" + k.name}, "#"))
	if err != nil {
		return json.RawMessage(text) // a string has no error
	}
	return slices.Concat(json.RawMessage(body+`,"instanceId":`), id, json.RawMessage("}"))
}
