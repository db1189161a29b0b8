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

// Nacos is the format as Dubbo stores it in Nacos:
//
//	service providers:<interface>:<version>:<group>   (empty parts keep their colons), group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":20000,"weight":1,"healthy":true,"enabled":true,"ephemeral":true,
//	          "clusterName":"DEFAULT","metadata":{"protocol":"tri","path":"<interface>", … as in ZooKeeper}}
//
// Older providers and consumers leave empty parts out of the name with their colons,
// see legacyName. Such services are read, and with Options.LegacyNames also written.
//
// One instance without protocol makes Java lose all providers of the service. The
// weight of the instance is always 1; Dubbo's weight is metadata.
//
// The value of an entry is a metadata.NacosInstance in canonical form, the key is its
// Key, 10.0.0.1:20000. Nacos accepts host names as well, as its ip.
type Nacos struct{ o options }

// NewNacos returns the codec of the format in Nacos. The error names every
// option that cannot be used.
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

// legacyName returns a service key without its empty parts. Dubbo up to 2.6 and 2.7.1,
// and dubbo-go up to 1.5.6, name services so.
func legacyName(key string) string {
	parts := strings.Split(key, ":")
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ":")
}

// Dependencies implements metadata.Codec: there are none.
func (*Nacos) Dependencies([]registry.Entry) []metadata.Ref { return nil }

// Decode implements metadata.Codec.
func (*Nacos) Decode(entries, _ []registry.Entry) ([]*registry.Service, []metadata.DecodeError) {
	return decode(entries, readInstance)
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
	var wrong error
	params, i.Cluster, wrong = takeCluster(p.url, params)
	return registry.Entry{Group: p.group, Key: i.Key(), Value: i.Text(fieldsOf(params))},
		errors.Join(ipv6Omission(p.address), wrong, droppedError(p.url, n.o.limit, dropped))
}

// takeCluster removes the cluster of an instance from its metadata. The error reports
// one that Nacos does not accept.
func takeCluster(url string, params []param) (others []param, cluster string, err error) {
	at := slices.IndexFunc(params, func(p param) bool { return p.key == metadata.KeyNacosCluster })
	if at < 0 {
		return params, "", nil
	}
	cluster = params[at].value
	params = slices.Delete(params, at, at+1)
	if !metadata.IsNacosCluster(cluster) {
		return params, "", &metadata.Omission{Reason: fmt.Sprintf("%s: %s %.80q is no name of a cluster, and is left out", url, metadata.KeyNacosCluster, cluster)}
	}
	return params, cluster, nil
}

// ipv6Omission says that dubbo-go cannot call an address: it joins host and port from
// Nacos with a colon alone. It is nil for IPv4.
func ipv6Omission(address string) error {
	if !strings.HasPrefix(address, "[") {
		return nil
	}
	return &metadata.Omission{Reason: "endpoint " + address + " is written for Java alone: dubbo-go cannot call an IPv6 address from Nacos"}
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

func readInstance(e registry.Entry) (*record, error) {
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
	f, err := read(parsedURL{protocol: protocol, host: i.IP, port: i.Port, path: i.Metadata[paramPath], params: params})
	if err != nil {
		return nil, err
	}
	if key := metadata.KeyOf(f.iface).String(); key != e.Group.Name && legacyName(key) != e.Group.Name {
		return nil, fmt.Errorf("is of %q, in the service %q", key, e.Group.Name)
	}
	if f.endpoint.Health != registry.Disabled {
		f.endpoint.Health = i.Health()
	}
	return f, nil
}

func paramsIn(m map[string]string) []param {
	params := make([]param, 0, len(m))
	for k, v := range m {
		params = append(params, param{key: k, value: v})
	}
	return params
}

// Kind returns the format's name, the Kind of its groups.
func (*Nacos) Kind() string { return Kind }

// GroupOf returns the group of a service; false for one of no providers, such as the
// consumers that Dubbo registers as well.
func (*Nacos) GroupOf(namespace, group, service string) (registry.Group, bool) {
	g := registry.Group{Kind: Kind, Namespace: namespace, Group: group, Name: service}
	return g, strings.HasPrefix(service, naming.Providers+":")
}
