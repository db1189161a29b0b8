package nacos

import (
	"fmt"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Exclusive is implemented by layouts whose consumers would call instances of
// another format in the same service. Nothing is added to a service that
// holds one.
type Exclusive interface {
	// Foreign says of which other format an instance is, nil where it is of
	// this one or does not say.
	Foreign(service string, in metadata.NacosInstance) error
}

// see takes in whether a service holds instances of another format.
func (t *Target) see(g registry.Group, instances []metadata.NacosInstance) {
	var foreign error
	for _, layout := range t.opts.Layouts {
		found, ok := layout.GroupOf(g.Namespace, g.Group, g.Name)
		exclusive, asks := layout.(Exclusive)
		if !ok || !asks || found != g {
			continue
		}
		for _, in := range instances {
			if err := exclusive.Foreign(g.Name, in); err != nil {
				foreign = fmt.Errorf("the service holds %s, which %w: one of the two formats needs another group or service name", in.Key(), err)
				break
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if foreign == nil {
		delete(t.foreignIn, g)
	} else {
		t.foreignIn[g] = foreign
	}
}

// foreign returns why nothing may be added to a service; nil where it may.
func (t *Target) foreign(g registry.Group) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.foreignIn[g]
}
