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

// A batch is all that a connection is to publish for one service: instances
// in canonical form, which is also what goes over the wire.
type batch []string

// newBatch returns a batch of the instances among entries.
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
		return err //nolint:wrapcheck // registry.Refused names the entry
	}
	return in.Check() //nolint:wrapcheck // registry.Refused names the entry
}

// request returns the request that publishes the batch.
func (b batch) request(k serviceKey) rpc_request.IRequest {
	if len(b) == 0 {
		// Which instance is named does not matter: the publication goes whole.
		one := model.Instance{Ip: "127.0.0.1", Port: 1, Ephemeral: true, ClusterName: metadata.DefaultNacosCluster}
		return rpc_request.NewInstanceRequest(onWire(k.namespace), k.name, k.group, "deregisterInstance", one)
	}
	instances := make([]json.RawMessage, len(b))
	for i, text := range b {
		instances[i] = identified(text, k)
	}
	return &batchRequest{rpc_request.NewNamingRequest(onWire(k.namespace), k.name, k.group), "batchRegisterInstance", instances}
}

// identified returns an instance with the id that a server would give it, as
// it goes over the wire. Not every server gives one to instances that are
// published together, and Kratos' consumers of more than 25 choose among them
// by their ids: without any, all calls go to one.
func identified(text string, k serviceKey) json.RawMessage {
	in, err := metadata.ParseNacosInstance(text)
	body, open := strings.CutSuffix(text, "}")
	if err != nil || !open {
		return json.RawMessage(text) // checkInstance lets none of these in
	}
	id, err := json.Marshal(strings.Join([]string{in.IP, strconv.Itoa(int(in.Port)), in.Cluster, k.group + "@@" + k.name}, "#"))
	if err != nil {
		return json.RawMessage(text) // of a string there is none
	}
	return slices.Concat(json.RawMessage(body+`,"instanceId":`), id, json.RawMessage("}"))
}
