package nacos

import (
	"fmt"
	"slices"

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

// withoutNew returns a change without what it would add to a service of
// another format, and why.
func (t *Target) withoutNew(change registry.Change) (registry.Change, error) {
	t.mu.Lock()
	alien := t.aliens[change.Group]
	t.mu.Unlock()
	if alien == nil {
		return change, nil
	}
	fresh := make(map[string]bool)
	for _, w := range change.Put {
		if w.Old == nil {
			fresh[w.New.Key] = true
		}
	}
	if len(fresh) == 0 {
		return change, nil
	}
	change.Put = slices.DeleteFunc(slices.Clone(change.Put), func(w registry.Write) bool { return fresh[w.New.Key] })
	change.Want = slices.DeleteFunc(slices.Clone(change.Want), func(e registry.Entry) bool { return fresh[e.Key] })
	return change, alien
}
