package nacos

import (
	"fmt"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Exclusive is implemented by layouts whose consumers would call instances of another format
// in the same service. No instance is added to a service with such an instance.
type Exclusive interface {
	// Foreign returns an error that names the other format of an instance; nil if the
	// instance is of this format or names none.
	Foreign(service string, in metadata.NacosInstance) error
}

// findForeign finds out whether a service holds instances of another format.
func (t *Target) findForeign(g registry.Group, instances []metadata.NacosInstance) {
	var foreign error
	if exclusive, ok := t.layoutOf(g).(Exclusive); ok {
		for _, in := range instances {
			if err := exclusive.Foreign(g.Name, in); err != nil {
				foreign = fmt.Errorf("the service holds %s, which %w; "+
					"use another group or service name for one of the two formats", in.Key(), err)
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

// foreign returns why no instance may be added to a service; nil if instances may be added.
func (t *Target) foreign(g registry.Group) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.foreignIn[g]
}
