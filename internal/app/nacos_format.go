package app

import (
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// nacosFormat is all that a format is in Nacos.
type nacosFormat interface {
	metadata.Codec
	nacos.Format
}

func (b *builder) nacosForm(u use) (nacosFormat, error) {
	return formOf[nacosFormat](b, u, format.Nacos)
}

// scoped is a format of Nacos within one namespace and group. It implements
// nacos.Layout.
type scoped struct {
	nacosFormat
	namespace, group string
}

// Scopes implements nacos.Layout.
func (s scoped) Scopes() []registry.Group {
	return []registry.Group{{Kind: s.Kind(), Namespace: s.namespace, Group: s.group}}
}

// GroupOf implements nacos.Layout.
func (s scoped) GroupOf(namespace, group, service string) (registry.Group, bool) {
	if namespace != s.namespace || group != s.group {
		return registry.Group{}, false
	}
	return s.nacosFormat.GroupOf(namespace, group, service)
}

// Foreign implements nacos.Exclusive.
func (s scoped) Foreign(service string, in metadata.NacosInstance) error {
	if f, ok := s.nacosFormat.(nacos.Exclusive); ok {
		return f.Foreign(service, in) //nolint:wrapcheck // says what the instance is
	}
	return nil
}

// multiPath is a scoped format that keeps parts of its groups in configurations.
type multiPath struct {
	scoped
	nacos.MultiPath
}

// nacosPlaced is a format within one namespace and group.
type nacosPlaced interface {
	nacosFormat
	Scopes() []registry.Group
}

// placedIn returns a format within one namespace and group.
func placedIn(f nacosFormat, namespace, group string) nacosPlaced {
	s := scoped{f, namespace, group}
	if w, ok := f.(nacos.MultiPath); ok {
		return multiPath{s, w}
	}
	return s
}
