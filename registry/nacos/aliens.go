package nacos

import (
	"fmt"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Jealous is implemented by layouts whose consumers would call instances of
// another format in the same service. Nothing is added to a service that
// holds one.
type Jealous interface {
	// Alien says of which other format an instance is, nil where it is of
	// this one or does not say.
	Alien(service string, in metadata.NacosInstance) error
}

// see takes in whether a service holds instances of another format.
func (t *Target) see(g registry.Group, instances []metadata.NacosInstance) {
	var alien error
	for _, layout := range t.opts.Layouts {
		found, ok := layout.GroupOf(g.Namespace, g.Group, g.Name)
		jealous, asks := layout.(Jealous)
		if !ok || !asks || found != g {
			continue
		}
		for _, in := range instances {
			if err := jealous.Alien(g.Name, in); err != nil {
				alien = fmt.Errorf("the service holds %s, which %w: one of the two formats needs another group or service name", in.Key(), err)
				break
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if alien == nil {
		delete(t.aliens, g)
	} else {
		t.aliens[g] = alien
	}
}

// alien returns why nothing may be added to a service; nil where it may.
func (t *Target) alien(g registry.Group) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.aliens[g]
}
