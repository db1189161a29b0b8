package client

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/cloudwego"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/gozero"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/kratos"
	"github.com/xds-bridge/xds-bridge/metadata/plain"
	"github.com/xds-bridge/xds-bridge/metadata/springcloud"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// zooKeeperCodec and nacosCodec turn what is provided into entries of a registry
// and back.
type zooKeeperCodec interface {
	zookeeper.Format
	Encode(s *registry.Service) ([]registry.Entry, error)
}

type nacosCodec interface {
	nacos.Format
	Encode(s *registry.Service) ([]registry.Entry, error)
}

// A format is how instances stand in ZooKeeper and Nacos.
type format struct {
	zookeeper func(ZooKeeperOptions) (zooKeeperCodec, error) // nil: it has no form there
	nacos     func(NacosOptions) (nacosCodec, error)
	services  func(Query) []string   // the names in Nacos that tell of a query
	shows     func(Instance) []Query // as Backend.Shows
}

// formats returns all of them, by the names that a bridge's configuration has for
// them.
func formats() map[string]format {
	inKratos := plainFormat("/microservices", "grpc", kratos.NewZooKeeper, kratos.NewNacos)
	inKratos.services = func(q Query) []string { return kratos.Services(nameIn(q)) }
	return map[string]format{
		dubbo.Kind: {
			zookeeper: func(o ZooKeeperOptions) (zooKeeperCodec, error) {
				return dubbo.NewZooKeeper(dubbo.Options{Root: o.Root, Mark: markOf(o.Identity)})
			},
			nacos: func(o NacosOptions) (nacosCodec, error) {
				return dubbo.NewNacos(dubbo.Options{Namespace: o.Conn.Namespace, Group: o.Group, Mark: markOf(o.Identity)})
			},
			services: serviceKeys, shows: byKeys,
		},
		kratos.Kind:      inKratos,
		springcloud.Kind: plainFormat("/services", "http", springcloud.NewZooKeeper, springcloud.NewNacos),
		gozero.Kind:      plainFormat("", "grpc", nil, gozero.NewNacos),
		cloudwego.Hertz:  plainFormat("/", "http", cloudwego.NewZooKeeper(cloudwego.Hertz), cloudwego.NewNacos(cloudwego.Hertz)),
		cloudwego.Kitex:  plainFormat("/", "thrift", cloudwego.NewZooKeeper(cloudwego.Kitex), cloudwego.NewNacos(cloudwego.Kitex)),
		plain.Kind:       plainFormat("/plain", "tcp", plain.NewZooKeeper, plain.NewNacos),
	}
}

// plainFormat is one in which services have the names of their applications. Root
// is the folder in ZooKeeper where none is named, and protocol that of instances
// that name none.
func plainFormat(
	root, protocol string, nodes func(instance.Options) (*instance.ZooKeeper, error), records func(instance.Options) (*instance.Nacos, error),
) format {
	f := format{services: func(q Query) []string { return []string{nameIn(q)} }, shows: byName}
	o := instance.Options{Protocol: protocol, Join: true}
	if nodes != nil {
		f.zookeeper = func(z ZooKeeperOptions) (zooKeeperCodec, error) {
			o.Root, o.Mark = cmp.Or(z.Root, root), markOf(z.Identity)
			return nodes(o)
		}
	}
	f.nacos = func(n NacosOptions) (nacosCodec, error) {
		o.Namespace, o.Group, o.Mark = n.Conn.Namespace, n.Group, markOf(n.Identity)
		return records(o)
	}
	return f
}

// formatNamed returns a format that a registry has; empty is Dubbo's.
func formatNamed(name string, has func(format) bool) (format, error) {
	all := formats()
	if f, ok := all[cmp.Or(name, dubbo.Kind)]; ok && has(f) {
		return f, nil
	}
	var known []string
	for name, f := range all {
		if has(f) {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	return format{}, fmt.Errorf("format: not known: %s; want one of %s", naming.Quote(name), strings.Join(known, ", "))
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

// serviceKeys names the service of Dubbo in Nacos that a query is about.
func serviceKeys(q Query) []string {
	if q.by == byKey {
		return []string{q.text}
	}
	return []string{keyOf(registry.Interface{Name: q.text}).String()}
}
