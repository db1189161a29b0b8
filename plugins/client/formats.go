package client

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/kratos"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// zooKeeperCodec and nacosCodec turn what is provided into entries of a registry
// and back.
type zooKeeperCodec interface {
	zookeeper.Format
	metadata.Encoder
}

type nacosCodec interface {
	nacos.Format
	metadata.Encoder
}

// A format is how instances stand in ZooKeeper and Nacos.
type format struct {
	zookeeper func(ZooKeeperOptions) (zooKeeperCodec, error) // nil: it has no form there
	nacos     func(NacosOptions) (nacosCodec, error)
	services  func(Query) []string   // the names in Nacos that tell of a query
	shows     func(Instance) []Query // as Backend.Shows
}

// known returns every format, by the names that a bridge's configuration has for them.
func known() map[string]format {
	out := map[string]format{
		dubbo.Kind: {
			zookeeper: func(o ZooKeeperOptions) (zooKeeperCodec, error) {
				return dubbo.NewZooKeeper(dubbo.Options{Root: o.Root, Mark: markOf(o.Identity)})
			},
			nacos: func(o NacosOptions) (nacosCodec, error) {
				return dubbo.NewNacos(dubbo.Options{Namespace: o.Conn.Namespace, Group: o.Group, Mark: markOf(o.Identity)})
			},
			services: serviceKeys, shows: byKeys,
		},
	}
	for kind, p := range formats.Plains() {
		out[kind] = plainFormat(p)
	}
	inKratos := out[kratos.Kind]
	inKratos.services = func(q Query) []string { return kratos.Services(nameIn(q)) }
	out[kratos.Kind] = inKratos
	return out
}

// plainFormat is one in which services have the names of their applications.
func plainFormat(p formats.Plain) format {
	f := format{services: plainNames, shows: byName}
	if p.ZooKeeper != nil {
		f.zookeeper = func(o ZooKeeperOptions) (zooKeeperCodec, error) {
			return p.ZooKeeper(instance.Options{Root: cmp.Or(o.Root, p.Root), Protocol: p.Protocol, Join: true, Mark: markOf(o.Identity)})
		}
	}
	if p.Nacos != nil {
		f.nacos = func(o NacosOptions) (nacosCodec, error) {
			return p.Nacos(instance.Options{
				Namespace: o.Conn.Namespace, Group: o.Group, Protocol: p.Protocol, Join: true, Mark: markOf(o.Identity),
			})
		}
	}
	return f
}

// formatNamed returns a format that a registry has; empty is Dubbo's.
func formatNamed(name string, has func(format) bool) (format, error) {
	all := known()
	if f, ok := all[cmp.Or(name, dubbo.Kind)]; ok && has(f) {
		return f, nil
	}
	var names []string
	for name, f := range all {
		if has(f) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return format{}, fmt.Errorf("format: not known: %s; want one of %s", naming.Quote(name), strings.Join(names, ", "))
}

// byName returns the query that has to find an instance by its application.
func byName(i Instance) []Query { return []Query{ByApplication(i.application())} }

// byKeys returns those by its service keys.
func byKeys(i Instance) []Query {
	var all []Query
	for _, k := range i.Keys() {
		all = append(all, ByKey(k))
	}
	return all
}

// nameIn returns the interface or application that a query is about.
func nameIn(q Query) string {
	if q.by != byKey {
		return q.text
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(q.text, naming.Providers+":"), ":")
	return name
}

// plainNames are the folders of ZooKeeper, and in most formats the services of
// Nacos, that tell of a query.
func plainNames(q Query) []string { return []string{nameIn(q)} }

// serviceKeys names the service of Dubbo in Nacos that a query is about.
func serviceKeys(q Query) []string {
	if q.by == byKey {
		return []string{q.text}
	}
	return []string{KeyOf(registry.Interface{Name: q.text}).String()}
}
