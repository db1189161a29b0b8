// Package cloudwego writes and reads services as the registries of Hertz and
// Kitex register them in ZooKeeper and in Nacos; the two differ in what they
// speak and in what a weight of 0 means. It is pure: no I/O, no time, no state.
package cloudwego

import (
	"github.com/xds-bridge/xds-bridge/metadata/convert"
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
	Name     string // Hertz or Kitex
	Protocol string // that it speaks where nothing else tells
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

// Joins implements instance.Form.
func (Format) Joins([]instance.Port) bool { return false }

// Own implements instance.Form. All tags are the user's, and one that is called
// protocol too.
func (f Format) Own(i instance.Instance) map[string]string {
	return instance.OwnProtocol(i, f.Protocol, instance.KeyOwnProtocol)
}

// Take implements instance.Form. Former versions of the bridge told the
// protocol under the user's word.
func (Format) Take(i *instance.Instance) error {
	instance.TakeProtocol(i, func(string) bool { return false })
	return nil
}

// Reserved implements instance.Form.
func (Format) Reserved(key string) bool { return key == instance.KeyOwnProtocol }

// weigh sets the share of an instance that was read. Kitex gives one of
// weight 0 no calls, Hertz as many as any.
func (f Format) weigh(i *instance.Instance, weight float64) {
	i.Share = convert.CloudWeGo().Share(weight)
	if weight <= 0 && f.Name == Kitex {
		i.Health = registry.Disabled
	}
}
