// Package cloudwego writes and reads services as the registries of Hertz and
// Kitex register them in ZooKeeper and in Nacos; the two differ in what they
// speak and in what a weight of 0 means. It is pure: no I/O, no time, no state.
package cloudwego

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The Group.Kind of every entry of these formats.
const (
	Hertz = "hertz"
	Kitex = "kitex"
)

// form is the part for both registries. Kitex speaks thrift and gRPC, and what its
// codecs add. All tags are users', also one named protocol.
func form(name, protocol string) instance.Form {
	return instance.Form{
		Kind:   name,
		Speaks: func(f convert.Family) bool { return (f == convert.HTTP) == (name == Hertz) },
		Own: func(i instance.Instance) map[string]string {
			return instance.OwnProtocol(i, protocol, instance.KeyOwnProtocol)
		},
		Extract: func(i *instance.Instance) error {
			// Former versions of the bridge wrote the protocol under the key of users.
			instance.ExtractProtocol(i, func(string) bool { return false })
			return nil
		},
		Reserved: []string{instance.KeyOwnProtocol},
	}
}

// FormatHertz describes the format of Hertz.
func FormatHertz() format.Descriptor { return describe(Hertz, "http") }

// FormatKitex describes the format of Kitex.
func FormatKitex() format.Descriptor { return describe(Kitex, "thrift") }

func describe(name, protocol string) format.Descriptor {
	return format.Descriptor{
		Name: name, Root: "/", Protocol: protocol, Untyped: true,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(NewZooKeeper(name)),
			format.Nacos:     format.Form(NewNacos(name)),
		},
	}
}

// NewNacos returns what makes the codec of a format in Nacos:
//
//	service <name>, group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":8888,"weight":10,…,"metadata":{<tags>,"xdsb":"<mark>"}}
//
// The tags are the metadata, and the mark is one of them. So a consumer that asks for
// instances with exactly some tags gets none of ours. Kitex joins host and port with a
// colon alone.
func NewNacos(name string) func(instance.Options) (*instance.Nacos, error) {
	return func(o instance.Options) (*instance.Nacos, error) {
		return instance.NewNacos(instance.RecordForm{Form: form(name, o.Protocol), Scale: convert.CloudWeGo(), IPv4: name == Kitex}, o)
	}
}

// NewZooKeeper returns what makes the codec of a format in ZooKeeper:
//
//	/<name>/<host>:<port>
//	{"Weight":10,"Tags":{…},"xdsb":"<mark>"}
//
// Both ignore the mark beside the tags, which are the provider's alone. A Kitex instance
// without a weight would get no calls, so there always is one. One node that is no JSON,
// or for Kitex is not named host:port, makes all consumers of the service fail. They poll.
func NewZooKeeper(name string) func(instance.Options) (*instance.ZooKeeper, error) {
	return func(o instance.Options) (*instance.ZooKeeper, error) {
		return instance.NewZooKeeper(instance.NodeForm{
			Form: form(name, o.Protocol), Named: named, Replaces: metadata.InPlace, Write: write,
			Read: func(node string, data []byte) (instance.Instance, error) { return read(name, node, data) },
		}, o)
	}
}

type node struct {
	Weight *int              `json:"Weight"`
	Tags   map[string]string `json:"Tags"`
	Mark   string            `json:"xdsb,omitempty"`
}

// named reports whether consumers read an address from the name of a node.
func named(name string) bool {
	_, err := instance.ParseAddress(name)
	return err == nil
}

func write(i instance.Instance) string {
	weight := int(convert.CloudWeGo().Of(i.Share))
	n := node{Weight: &weight, Tags: maps.Clone(i.Metadata), Mark: i.Metadata[metadata.MarkKey]}
	delete(n.Tags, metadata.MarkKey)
	return metadata.JSON(n)
}

// read reads a node of a format. An instance of weight 0 gets no calls from Kitex, and
// normal ones from Hertz.
func read(kind, name string, data []byte) (instance.Instance, error) {
	p, err := instance.ParseAddress(name)
	if err != nil {
		return instance.Instance{}, err
	}
	var n node
	if err := json.Unmarshal(data, &n); err != nil {
		return instance.Instance{}, fmt.Errorf("is no JSON of %s: %w", kind, err)
	}
	i := instance.Instance{Ports: []instance.Port{p}, Metadata: n.Tags}
	if n.Mark != "" {
		i.Metadata = maps.Clone(n.Tags)
		if i.Metadata == nil {
			i.Metadata = make(map[string]string)
		}
		i.Metadata[metadata.MarkKey] = n.Mark
	}
	weight := 0
	if n.Weight != nil {
		weight = *n.Weight
	}
	i.Share = convert.CloudWeGo().Share(float64(weight))
	if weight <= 0 && kind == Kitex {
		i.Health = registry.Disabled
	}
	return i, nil
}
