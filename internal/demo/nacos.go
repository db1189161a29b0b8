package demo

import (
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// nacosTarget returns a real Nacos. There is nothing to restore in one: what
// is published goes with the connection, and a service without instances some
// time later.
func (s *stage) nacosTarget(mark metadata.Mark) (registry.Target, error) {
	codec, err := dubbo.NewNacos(dubbo.Options{Group: s.options.Root, Mark: mark})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	s.format = codec
	s.folder = func(g registry.Group) (string, error) { return g.Name, nil }
	if s.nacos, err = nacos.New(nacos.Options{Servers: []string{s.options.Nacos}, Log: s.options.Log}); err != nil {
		return nil, fmt.Errorf("demo: --nacos: %w", err)
	}
	target, err := nacos.NewTarget(s.nacos, nacos.TargetOptions{Owner: mark.Owner, Layouts: []nacos.Layout{providers(s.options.Root)}})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return target, nil
}

// providers is the group of a Nacos in which Dubbo's interface-level services
// lie.
type providers string

// Scopes implements nacos.Layout.
func (p providers) Scopes() []registry.Group { return []registry.Group{{Group: string(p)}} }

// GroupOf implements nacos.Layout.
func (providers) GroupOf(namespace, group, service string) (registry.Group, bool) {
	g := registry.Group{Kind: dubbo.Kind, Namespace: namespace, Group: group, Name: service}
	return g, strings.HasPrefix(service, "providers:")
}
