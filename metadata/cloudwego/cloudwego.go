// Package cloudwego writes and reads services as the registries of Hertz and
// Kitex register them in ZooKeeper and in Nacos; the two differ in what they
// speak and in what a weight of 0 means. It is pure: no I/O, no time, no state.
package cloudwego

import (
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

// Format is one of the two.
type Format struct {
	instance.SinglePort
	Name     string // Hertz or Kitex
	Protocol string // of endpoints that name none
}

// Kind implements instance.Form.
func (f Format) Kind() string { return f.Name }

// Speaks implements instance.Form: Kitex speaks thrift and gRPC, and what its
// codecs add.
func (f Format) Speaks(family convert.Family) bool {
	if f.Name == Hertz {
		return family == convert.HTTP
	}
	return family != convert.HTTP
}

// Own implements instance.Form. All tags are users', also one named protocol.
func (f Format) Own(i instance.Instance) map[string]string {
	return instance.OwnProtocol(i, f.Protocol, instance.KeyOwnProtocol)
}

// Extract implements instance.Form. Former versions of the bridge wrote the
// protocol under the key of users.
func (Format) Extract(i *instance.Instance) error {
	instance.ExtractProtocol(i, func(string) bool { return false })
	return nil
}

// Reserved implements instance.Form.
func (Format) Reserved(key string) bool { return key == instance.KeyOwnProtocol }

// setWeight sets the share of an instance that was read. One of weight 0 gets no calls
// from Kitex, and normal ones from Hertz.
func (f Format) setWeight(i *instance.Instance, weight float64) {
	i.Share = convert.CloudWeGo().Share(weight)
	if weight <= 0 && f.Name == Kitex {
		i.Health = registry.Disabled
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
			format.ZooKeeper: format.Form(instance.FromFormat, NewZooKeeper(name)),
			format.Nacos:     format.Form(instance.FromFormat, NewNacos(name)),
		},
	}
}

// Nacos is the format of both in Nacos:
//
//	service <name>, group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":8888,"weight":10,…,"metadata":{<tags>,"xdsb":"<mark>"}}
//
// The tags are the metadata, and the mark is one of them. So a consumer that asks for
// instances with exactly some tags gets none of ours.
type Nacos struct{ Format }

// NewNacos returns what makes the codec of a format in Nacos.
func NewNacos(name string) func(instance.Options) (*instance.Nacos, error) {
	return func(o instance.Options) (*instance.Nacos, error) {
		return instance.NewNacos(Nacos{Format{Name: name, Protocol: o.Protocol}}, o)
	}
}

// Scale implements instance.RecordForm.
func (Nacos) Scale() convert.Scale { return convert.CloudWeGo() }

// IPv6 implements instance.RecordForm: Kitex joins host and port with a colon
// alone.
func (n Nacos) IPv6() bool { return n.Format.Name == Hertz }

// Name implements instance.RecordForm.
func (Nacos) Name(service, _ string) string { return service }

// Parse implements instance.RecordForm.
func (Nacos) Parse(service string) (string, bool) { return service, true }
