package dubbo

import (
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Kind returns the format's name, the Kind of its groups.
func (*Nacos) Kind() string { return Kind }

// GroupOf returns the group that a service of a server is, in whatever
// namespace and group it lies; false for one that is no provider's, such as
// the consumers that Dubbo registers beside them.
func (*Nacos) GroupOf(namespace, group, service string) (registry.Group, bool) {
	g := registry.Group{Kind: Kind, Namespace: namespace, Group: group, Name: service}
	return g, strings.HasPrefix(service, naming.Providers+":")
}
