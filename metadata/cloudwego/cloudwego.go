// Package cloudwego encodes and decodes services as the registries of Hertz and Kitex
// register them in ZooKeeper and in Nacos. The two frameworks differ in their protocols
// and in the meaning of a weight of 0. The package is pure: no I/O, no time, no state.
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

// commonForm is the part of the form that both registries share. Kitex speaks thrift,
// gRPC and other protocols that its codecs add. All tags belong to users, even a tag
// named protocol.
func commonForm(name, protocol string) instance.Form {
	return instance.Form{
		Kind:   name,
		Speaks: func(f convert.Family) bool { return (f == convert.HTTP) == (name == Hertz) },
		Own: func(i instance.Instance) map[string]string {
			return instance.OwnProtocol(i, protocol, instance.KeyOwnProtocol)
		},
		Extract: func(i *instance.Instance) error {
			// Earlier versions of the bridge wrote the protocol under the users' key.
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

// NewNacos returns the constructor of the codec of a format in Nacos:
//
//	service <name>, group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":8888,"weight":10,…,"metadata":{<tags>,"xdsb":"<mark>"}}
//
// The tags are the metadata, and the mark is one of them. So a consumer that requests
// instances with an exact set of tags gets none of our instances. Kitex joins host and port with
// a colon, without brackets.
func NewNacos(name string) func(instance.Options) (*instance.Nacos, error) {
	return func(o instance.Options) (*instance.Nacos, error) {
		return instance.NewNacos(instance.NacosForm{
			Form: commonForm(name, o.Protocol), Scale: convert.CloudWeGo(), IPv4: name == Kitex,
		}, o)
	}
}

// NewZooKeeper returns the constructor of the codec of a format in ZooKeeper:
//
//	/<name>/<host>:<port>
//	{"Weight":10,"Tags":{…},"xdsb":"<mark>"}
//
// Both frameworks ignore the mark, which is not one of the tags. A Kitex instance
// without a weight would get no calls, so the weight is always written. One node that is
// not JSON, or for Kitex is not named host:port, makes all consumers of the service
// fail. Consumers poll.
func NewZooKeeper(name string) func(instance.Options) (*instance.ZooKeeper, error) {
	return func(o instance.Options) (*instance.ZooKeeper, error) {
		return instance.NewZooKeeper(instance.NodeForm{
			Form: commonForm(name, o.Protocol), Named: named, Replaces: metadata.InPlace, Write: write,
			Read: func(node string, data []byte) (instance.Instance, error) { return read(name, node, data) },
		}, o)
	}
}

type node struct {
	Weight *int              `json:"Weight"`
	Tags   map[string]string `json:"Tags"`
	Mark   string            `json:"xdsb,omitempty"`
}

// named reports whether the name of a node is an address, which consumers parse.
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

// read decodes a node of a format. An instance of weight 0 gets no calls from Kitex, and
// a normal share from Hertz.
func read(kind, name string, data []byte) (instance.Instance, error) {
	p, err := instance.ParseAddress(name)
	if err != nil {
		return instance.Instance{}, err
	}
	var n node
	if err := json.Unmarshal(data, &n); err != nil {
		return instance.Instance{}, fmt.Errorf("is not JSON of %s: %w", kind, err)
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
