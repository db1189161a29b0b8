// Package plain encodes and decodes services as hosts and ports, for consumers of other
// frameworks. It is pure: no I/O, no time, no state.
package plain

import (
	"encoding/json"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// Kind is the Group.Kind of every entry of this format.
const Kind = "plain"

// NewNacos returns the codec of the format in Nacos:
//
//	service <name>, group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":8080,"weight":1,…,"metadata":{["protocol":"grpc",]…,"xdsb":"<mark>"}}
//
// Other writers may use the key protocol for anything.
func NewNacos(o instance.Options) (*instance.Nacos, error) {
	own := func(i instance.Instance) map[string]string {
		return instance.OwnProtocol(i, o.Protocol, instance.KeyProtocol)
	}
	extract := func(i *instance.Instance) error {
		instance.ExtractProtocol(i, convert.Known)
		return nil
	}
	return instance.NewNacos(instance.NacosForm{
		Form:  instance.Form{Kind: Kind, Own: own, Extract: extract, Reserved: []string{instance.KeyOwnProtocol}},
		Scale: convert.Nacos(),
	}, o)
}

// NewZooKeeper returns the codec of the format in ZooKeeper:
//
//	/plain/<name>/<host>:<port>
//	{"host":"10.0.0.1","port":8080,"protocol":"tcp","weight":1,"metadata":{…,"xdsb":"<mark>"}}
//
// The name of a node is its address. A node that is read may have any data, or any name
// if its data is host:port.
func NewZooKeeper(o instance.Options) (*instance.ZooKeeper, error) {
	return instance.NewZooKeeper(instance.NodeForm{
		Form: instance.Form{Kind: Kind}, Replaces: metadata.InPlace, Write: write, Read: read,
	}, o)
}

type node struct {
	Host     string            `json:"host"`
	Port     uint16            `json:"port"`
	Protocol string            `json:"protocol"`
	Weight   float64           `json:"weight"`
	Metadata map[string]string `json:"metadata"`
}

func write(i instance.Instance) string {
	p := i.Ports[0]
	n := node{Host: p.Host, Port: p.Port, Protocol: p.Protocol, Weight: convert.Nacos().Of(i.Share), Metadata: i.Metadata}
	return metadata.JSON(n)
}

func read(name string, data []byte) (instance.Instance, error) {
	p, err := instance.ParseAddress(name)
	if err != nil {
		if p, err = instance.ParseAddress(strings.TrimSpace(string(data))); err != nil {
			return instance.Instance{}, err
		}
		return instance.Instance{Ports: []instance.Port{p}}, nil
	}
	i := instance.Instance{Ports: []instance.Port{p}}
	var n node
	if json.Unmarshal(data, &n) == nil {
		i.Ports[0].Protocol, i.Metadata = n.Protocol, n.Metadata
		i.Share = convert.Nacos().Share(n.Weight)
	}
	return i, nil
}

// Format describes the format.
func Format() format.Descriptor {
	return format.Descriptor{
		Name: Kind, Root: "/plain", Protocol: "tcp", Untyped: true,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(NewZooKeeper),
			format.Nacos:     format.Form(NewNacos),
		},
	}
}
