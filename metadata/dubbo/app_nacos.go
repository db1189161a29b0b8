package dubbo

import (
	"errors"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// NacosApp is the application-level format as Dubbo stores it in Nacos:
//
//	service <application>, group DEFAULT_GROUP, instances whose metadata is as in ZooKeeper
//	configuration <interface> of group mapping: <application>,<application>      shared, changed by compare-and-swap
//	configuration <application> of group <revision>: the document as in ZooKeeper
//
// For services of another registry, an application may have several instances at one
// address, one for each interface. They have different clusters. The original cluster of
// such an instance is metadata.
//
// dubbo-go from 3.3.1 on prefers the weight of the instance to the weight in the
// document. Java and older versions use that of the document. An instance of weight 0
// would get no calls.
//
// The value of an instance's entry is a metadata.NacosInstance in canonical form, and the
// key is its Key. As ip, Nacos also accepts host names.
type NacosApp struct{ o options }

// NewNacosApp returns the codec of the application-level format in Nacos. The error names
// every invalid option.
func NewNacosApp(o Options) (*NacosApp, error) {
	all, err := withNacosDefaults(o, KindApplication)
	if err != nil {
		return nil, err
	}
	return &NacosApp{all}, nil
}

// Encode implements metadata.Codec.
func (n *NacosApp) Encode(s *registry.Service) ([]registry.Entry, error) {
	return n.o.encodeApps(s, n)
}

// Dependencies implements metadata.Codec: instances depend on documents.
func (*NacosApp) Dependencies(entries []registry.Entry) []metadata.Ref {
	return dependencies(entries, parseNacos)
}

// Decode implements metadata.Codec.
func (*NacosApp) Decode(entries, extras []registry.Entry) ([]*registry.Service, []metadata.DecodeError) {
	return decodeApps(entries, extras, parseNacos)
}

func (n *NacosApp) group(app string) registry.Group {
	return registry.Group{Kind: KindApplication, Namespace: n.o.Namespace, Group: n.o.Group, Name: app}
}

// clusterPrefix begins the clusters of instances from another registry.
const clusterPrefix = "xdsb-"

func (n *NacosApp) instance(in *instance, app, distinction string) (registry.Entry, error) {
	e := in.endpoint
	if err := metadata.CheckNacosAddress(e.Host); err != nil {
		return registry.Entry{}, fmt.Errorf("endpoint %s: %w", in.address, err)
	}
	params, dropped, err := in.metadataWithin(n.o.limit)
	if err != nil {
		return registry.Entry{}, err
	}
	i := metadata.NacosInstance{
		IP: e.Host, Port: e.Port, Weight: float64(min(max(in.weight(), 1), metadata.MaxNacosWeight)),
		Enabled: true, Healthy: true, Ephemeral: true,
	}
	var invalidCluster error
	if distinction != "" {
		i.Cluster = clusterPrefix + distinction
	} else {
		params, i.Cluster, invalidCluster = takeCluster(in.address, params)
	}
	return registry.Entry{Group: n.group(app), Key: i.Key(), Value: i.Text(fieldsOf(params))},
		errors.Join(ipv6Omission(in.address), invalidCluster, in.droppedError(n.o.limit, dropped))
}

func (n *NacosApp) documents(app, revision, text string) []registry.Entry {
	return []registry.Entry{{Group: n.group(app), Key: keyMetadata + revision, Value: text}}
}

// checkMapping implements appForm: the mapping of an interface is a configuration with
// the interface's name.
func (*NacosApp) checkMapping(iface string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:"
	if strings.Trim(iface, allowed) != "" {
		return fmt.Errorf("interface %s: Nacos accepts only - _ . : and letters and digits in the name of a configuration",
			naming.Quote(iface))
	}
	return nil
}

const springSource = "preserved.register.source" // set in instances that Spring Cloud registers

// parseNacos decodes an instance of Nacos.
func parseNacos(e registry.Entry) (registration, error) {
	i, err := metadata.ParseNacosInstance(e.Value)
	if err != nil {
		return registration{}, err
	}
	if i.Metadata[metaRevision] == "" && i.Metadata[metaOldRevision] != "" {
		return registration{}, errOldLevel
	}
	if i.Metadata[metaRevision] == "" {
		for k := range i.Metadata { // Spring Cloud Alibaba Dubbo also writes such keys
			if strings.HasPrefix(k, "dubbo.") && i.Metadata[springSource] == "" {
				return registration{}, errNoRevision
			}
		}
		return registration{}, fmt.Errorf("%w: %w", errForeign, errNoRevision)
	}
	if cluster := i.ClusterAttribute(); cluster != "" && !strings.HasPrefix(cluster, clusterPrefix) {
		i.Metadata[metadata.KeyNacosCluster] = cluster
	}
	return registration{entry: e, host: i.IP, port: i.Port, metadata: i.Metadata, health: i.Health()}, nil
}

// Kind returns the name of the format, which is the Kind of its groups.
func (*NacosApp) Kind() string { return KindApplication }

// GroupOf returns the group of a service; false if its name cannot be that of an
// application.
func (*NacosApp) GroupOf(namespace, group, service string) (registry.Group, bool) {
	g := registry.Group{Kind: KindApplication, Namespace: namespace, Group: group, Name: service}
	return g, checkApplication(service) == nil
}

// Config returns the configuration that stores an entry, and the element of its list if
// the configuration is shared. It is empty for an instance.
func (*NacosApp) Config(e registry.Entry) (c metadata.NacosConfig, element string) {
	if iface, ok := strings.CutPrefix(e.Key, keyMapping); ok {
		return metadata.NacosConfig{Namespace: e.Group.Namespace, Group: "mapping", ID: iface}, e.Group.Name
	}
	if revision, ok := ParseMetadataRevision(e.Key); ok {
		return metadata.NacosConfig{Namespace: e.Group.Namespace, Group: revision, ID: e.Group.Name}, ""
	}
	return metadata.NacosConfig{}, ""
}

// Elements returns the entries of shared lists that belong to our entry e.
func (*NacosApp) Elements(e registry.Entry) []registry.Entry { return elementsOf(e) }
