package client

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Form is a format of instances in one kind of registry.
type Form struct {
	format.Descriptor
	Options format.Options
}

// FormIn returns the form of a format in a kind of registry; an empty name means Dubbo's
// interface-level format. The options provide the parent path and the mark.
func FormIn(_ seam.Key, kind, name string, options format.Options) (Form, error) {
	var names []string
	for _, d := range formats.All() {
		if d.Forms[kind] == nil || d.Lookup == format.ByMapping { // only Dubbo's own clients follow the mapping
			continue
		}
		if d.Name == cmp.Or(name, dubbo.Kind) {
			options.Root, options.Protocol, options.Join = cmp.Or(options.Root, d.Root), d.Protocol, true
			return Form{d, options}, nil
		}
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return Form{}, fmt.Errorf("format: not known: %s; want one of %s", naming.Quote(name), strings.Join(names, ", "))
}

// PlaceOf returns the Backend.Place of a registry. The order of the servers does not matter.
func PlaceOf(_ seam.Key, kind string, servers []string, within, form string) string {
	servers = slices.Sorted(slices.Values(servers))
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", kind, strings.Join(servers, ","), within, form))
}

// Shows implements Backend.Shows.
func (f Form) Shows(i Instance) []Query {
	if f.Lookup == format.ByKey {
		return byKeys(i)
	}
	return byName(i)
}

// NacosServices returns the services of Nacos that report a query.
func (f Form) NacosServices(q Query) []string {
	switch {
	case f.Lookup == format.ByKey:
		return serviceKeys(q)
	case f.NacosNames != nil:
		return f.NacosNames(nameIn(q))
	}
	return plainNames(q)
}

// byName returns the query by the application of an instance.
func byName(i Instance) []Query { return []Query{ByApplication(i.application())} }

// byKeys returns the queries by the service keys of an instance.
func byKeys(i Instance) []Query {
	var all []Query
	for _, k := range i.keys() {
		all = append(all, ofKey(k))
	}
	return all
}

// nameIn returns the interface or application of a query.
func nameIn(q Query) string {
	if q.by != byKey {
		return q.text
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(q.text, naming.Providers+":"), ":")
	return name
}

// ZooKeeperNames implements Backend.Names.
func (Form) ZooKeeperNames(q Query) []string { return plainNames(q) }

// plainNames returns the paths in ZooKeeper that report a query. In most formats they are
// also the services in Nacos.
func plainNames(q Query) []string { return []string{nameIn(q)} }

// serviceKeys returns the service that reports a query in Dubbo's format in Nacos.
func serviceKeys(q Query) []string {
	if q.by == byKey {
		return []string{q.text}
	}
	return []string{metadata.KeyOf(registry.Interface{Name: q.text}).String()}
}
