package cloudwego

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// ZooKeeper is the format of both in ZooKeeper:
//
//	/<name>/<host>:<port>
//	{"Weight":10,"Tags":{…},"xdsb":"<mark>"}
//
// Both ignore the mark beside the tags, which are the provider's alone. A Kitex instance
// without a weight would get no calls, so there always is one. One node that is no JSON,
// or for Kitex is not named host:port, makes all consumers of the service fail.
type ZooKeeper struct{ Format }

// NewZooKeeper returns what makes the codec of a format in ZooKeeper.
func NewZooKeeper(name string) func(instance.Options) (*instance.ZooKeeper, error) {
	return func(o instance.Options) (*instance.ZooKeeper, error) {
		return instance.NewZooKeeper(ZooKeeper{Format{Name: name, Protocol: o.Protocol}}, o)
	}
}

type node struct {
	Weight *int              `json:"Weight"`
	Tags   map[string]string `json:"Tags"`
	Mark   string            `json:"xdsb,omitempty"`
}

// Prefix implements instance.NodeForm: consumers read the address from the name.
func (ZooKeeper) Prefix() string { return "" }

// Named implements instance.NodeForm.
func (ZooKeeper) Named(name string) bool {
	_, err := instance.ParseAddress(name)
	return err == nil
}

// Replaces implements instance.NodeForm: consumers poll.
func (ZooKeeper) Replaces() metadata.Replacement { return metadata.InPlace }

// Write implements instance.NodeForm.
func (ZooKeeper) Write(i instance.Instance) string {
	weight := int(convert.CloudWeGo().Of(i.Share))
	n := node{Weight: &weight, Tags: maps.Clone(i.Metadata), Mark: i.Metadata[metadata.MarkKey]}
	delete(n.Tags, metadata.MarkKey)
	return metadata.JSON(n)
}

// Read implements instance.NodeForm.
func (z ZooKeeper) Read(name string, data []byte) (instance.Instance, error) {
	p, err := instance.ParseAddress(name)
	if err != nil {
		return instance.Instance{}, err //nolint:wrapcheck // says what it is not
	}
	var n node
	if err := json.Unmarshal(data, &n); err != nil {
		return instance.Instance{}, fmt.Errorf("is no JSON of %s: %w", z.Name, err)
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
	z.setWeight(&i, float64(weight))
	return i, nil
}
