package dubbo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Nacos is the interface-level format as Dubbo stores it in Nacos:
//
//	service providers:<interface>:<version>:<group>   (empty parts keep their colons), group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":20000,"weight":1,"healthy":true,"enabled":true,"ephemeral":true,
//	          "clusterName":"DEFAULT","metadata":{"protocol":"tri","path":"<interface>", … as in ZooKeeper}}
//
// Older providers and consumers leave empty parts and their colons out of the name, see
// legacyName. Such services are read, and with Options.LegacyNames also written.
//
// One instance without protocol makes Java lose all providers of the service. The
// weight of the instance is always 1; Dubbo's weight is metadata.
//
// The value of an entry is a metadata.NacosInstance in canonical form. The key is its
// Key, such as 10.0.0.1:20000. As ip, Nacos also accepts host names.
type Nacos struct{ o options }

// NewNacos returns the codec of the format in Nacos. The error names every invalid
// option.
func NewNacos(o Options) (*Nacos, error) {
	all, err := withNacosDefaults(o, Kind)
	if err != nil {
		return nil, err
	}
	return &Nacos{all}, nil
}

// Encode implements metadata.Codec.
func (n *Nacos) Encode(s *registry.Service) ([]registry.Entry, error) {
	entries, err := n.o.encode(s, n)
	if !n.o.LegacyNames {
		return entries, err
	}
	for _, e := range entries {
		legacy := legacyName(e.Group.Name)
		if legacy != e.Group.Name {
			e.Group.Name = legacy
			entries = append(entries, e)
		}
	}
	return registry.Sorted(entries), err
}

// legacyName returns a service key without its empty parts, as Dubbo up to 2.6 and 2.7.1
// and dubbo-go up to 1.5.6 name services.
func legacyName(key string) string {
	parts := strings.Split(key, ":")
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ":")
}

// Dependencies implements metadata.Codec: the entries are complete.
func (*Nacos) Dependencies([]registry.Entry) []metadata.Ref { return nil }

// Decode implements metadata.Codec.
func (*Nacos) Decode(entries, _ []registry.Entry) ([]*registry.Service, []metadata.DecodeError) {
	return decode(entries, decodeNacos)
}

func (n *Nacos) entry(p *provider) (registry.Entry, error) {
	e := p.endpoint
	if err := metadata.CheckNacosAddress(e.Host); err != nil {
		return registry.Entry{}, fmt.Errorf("endpoint %s: %w", p.address, err)
	}
	v := p.values()
	v[rankPath], v[rankProtocol] = p.path(), p.protocol
	params, dropped, err := fit(p.params(p.draft, &v), n.o.limit)
	if err != nil {
		return registry.Entry{}, fmt.Errorf("%s: %w", p.iface.Name, err)
	}
	i := metadata.NacosInstance{IP: e.Host, Port: e.Port, Weight: 1, Enabled: true, Healthy: true, Ephemeral: true}
	var invalidCluster error
	params, i.Cluster, invalidCluster = takeCluster(p.url, params)
	return registry.Entry{Group: p.group, Key: i.Key(), Value: i.Text(fieldsOf(params))},
		errors.Join(ipv6Omission(p.address), invalidCluster, droppedError(p.url, n.o.limit, dropped))
}

// takeCluster removes the cluster of an instance from its metadata and returns it. The
// error names a cluster that Nacos does not accept.
func takeCluster(url string, params []param) (others []param, cluster string, err error) {
	at := slices.IndexFunc(params, func(p param) bool { return p.key == metadata.KeyNacosCluster })
	if at < 0 {
		return params, "", nil
	}
	cluster = params[at].value
	params = slices.Delete(params, at, at+1)
	if !metadata.IsNacosCluster(cluster) {
		return params, "", &metadata.Omission{Reason: fmt.Sprintf(
			"%s: %s %.80q is not a valid cluster, and is left out", url, metadata.KeyNacosCluster, cluster)}
	}
	return params, cluster, nil
}

// ipv6Omission returns an error about an IPv6 address, and nil for IPv4. dubbo-go cannot
// call such an address, because it joins host and port from Nacos without brackets.
func ipv6Omission(address string) error {
	if !strings.HasPrefix(address, "[") {
		return nil
	}
	return &metadata.Omission{
		Reason: "endpoint " + address + " is usable only from Java: dubbo-go cannot call an IPv6 address from Nacos",
	}
}

func (*Nacos) own() []param {
	return []param{{key: paramPath, rank: rankPath}, {key: paramProtocol, rank: rankProtocol}}
}

func (n *Nacos) groupOf(i registry.Interface) registry.Group {
	return n.group(metadata.KeyOf(i).String())
}

func (n *Nacos) group(name string) registry.Group {
	return registry.Group{Kind: Kind, Namespace: n.o.Namespace, Group: n.o.Group, Name: name}
}

var errMetadata = errors.New("has no protocol in its metadata")

func decodeNacos(e registry.Entry) (*decodedProvider, error) {
	i, err := metadata.ParseNacosInstance(e.Value)
	if err != nil {
		return nil, err
	}
	if err := checkAddress(i.IP, i.Port); err != nil {
		return nil, err
	}
	protocol := i.Metadata[paramProtocol]
	if protocol == "" {
		return nil, errMetadata
	}
	if len(i.Metadata) > maxParams {
		return nil, fmt.Errorf("more than %d metadata keys", maxParams)
	}
	if err := checkProtocol(protocol); err != nil {
		return nil, err
	}
	params := resolveDefaults(paramsIn(i.Metadata))
	if cluster := i.ClusterAttribute(); cluster != "" {
		params = append(params, param{key: metadata.KeyNacosCluster, value: cluster})
	}
	p, err := decodeURL(parsedURL{
		protocol: protocol, host: i.IP, port: i.Port, path: i.Metadata[paramPath], params: params,
	})
	if err != nil {
		return nil, err
	}
	if key := metadata.KeyOf(p.iface).String(); key != e.Group.Name && legacyName(key) != e.Group.Name {
		return nil, fmt.Errorf("belongs to %q, but is in the service %q", key, e.Group.Name)
	}
	if p.endpoint.Health != registry.Disabled {
		p.endpoint.Health = i.Health()
	}
	return p, nil
}

func paramsIn(m map[string]string) []param {
	params := make([]param, 0, len(m))
	for k, v := range m {
		params = append(params, param{key: k, value: v})
	}
	return params
}

// Kind returns the name of the format, which is the Kind of its groups.
func (*Nacos) Kind() string { return Kind }

// GroupOf returns the group of a service; false for a service without providers, such as
// those of consumers, which Dubbo also registers.
func (*Nacos) GroupOf(namespace, group, service string) (registry.Group, bool) {
	g := registry.Group{Kind: Kind, Namespace: namespace, Group: group, Name: service}
	return g, strings.HasPrefix(service, naming.Providers+":")
}
