// Package plain writes and reads services as hosts and ports, for consumers of other
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

// form is the part for both registries.
type form struct {
	instance.SinglePort
	protocol string
}

// Kind implements instance.Form.
func (form) Kind() string { return Kind }

// Speaks implements instance.Form: consumers may speak any protocol.
func (form) Speaks(convert.Family) bool { return true }

// Nacos is the format in Nacos:
//
//	service <name>, group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":8080,"weight":1,…,"metadata":{["protocol":"grpc",]…,"xdsb":"<mark>"}}
type Nacos struct {
	form
	instance.PlainNames
}

// NewNacos returns the codec of the format in Nacos.
func NewNacos(o instance.Options) (*instance.Nacos, error) {
	return instance.NewNacos(Nacos{form: form{protocol: o.Protocol}}, o) //nolint:wrapcheck // names the format
}

// Own implements instance.Form.
func (n Nacos) Own(i instance.Instance) map[string]string {
	return instance.OwnProtocol(i, n.protocol, instance.KeyProtocol)
}

// Extract implements instance.Form. Others may store anything as protocol.
func (Nacos) Extract(i *instance.Instance) error {
	instance.ExtractProtocol(i, convert.Known)
	return nil
}

// Reserved implements instance.Form.
func (Nacos) Reserved(key string) bool { return key == instance.KeyOwnProtocol }

// IPv6 implements instance.RecordForm.
func (Nacos) IPv6() bool { return true }

// Scale implements instance.RecordForm.
func (Nacos) Scale() convert.Scale { return convert.Nacos() }

// ZooKeeper is the format in ZooKeeper:
//
//	/plain/<name>/<host>:<port>
//	{"host":"10.0.0.1","port":8080,"protocol":"tcp","weight":1,"metadata":{…,"xdsb":"<mark>"}}
//
// The names of the nodes have all addresses. A node that is read may have any data, or
// any name if its data is host:port.
type ZooKeeper struct{ form }

// NewZooKeeper returns the codec of the format in ZooKeeper.
func NewZooKeeper(o instance.Options) (*instance.ZooKeeper, error) {
	return instance.NewZooKeeper(ZooKeeper{form{protocol: o.Protocol}}, o) //nolint:wrapcheck // names the format
}

type node struct {
	Host     string            `json:"host"`
	Port     uint16            `json:"port"`
	Protocol string            `json:"protocol"`
	Weight   float64           `json:"weight"`
	Metadata map[string]string `json:"metadata"`
}

// Prefix implements instance.NodeForm.
func (ZooKeeper) Prefix() string { return "" }

// Named implements instance.NodeForm.
func (ZooKeeper) Named(string) bool { return true }

// Own implements instance.Form.
func (ZooKeeper) Own(instance.Instance) map[string]string { return nil }

// Extract implements instance.Form.
func (ZooKeeper) Extract(*instance.Instance) error { return nil }

// Reserved implements instance.Form.
func (ZooKeeper) Reserved(string) bool { return false }

// Write implements instance.NodeForm.
func (ZooKeeper) Write(i instance.Instance) string {
	p := i.Ports[0]
	n := node{Host: p.Host, Port: p.Port, Protocol: p.Protocol, Weight: convert.Nacos().Of(i.Share), Metadata: i.Metadata}
	return metadata.JSON(n)
}

// Replaces implements instance.NodeForm.
func (ZooKeeper) Replaces() metadata.Replacement { return metadata.InPlace }

// Read implements instance.NodeForm.
func (ZooKeeper) Read(name string, data []byte) (instance.Instance, error) {
	p, err := instance.ParseAddress(name)
	if err != nil {
		if p, err = instance.ParseAddress(strings.TrimSpace(string(data))); err != nil {
			return instance.Instance{}, err //nolint:wrapcheck // says what it is not
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
			format.ZooKeeper: format.Form(instance.FromFormat, NewZooKeeper),
			format.Nacos:     format.Form(instance.FromFormat, NewNacos),
		},
	}
}
