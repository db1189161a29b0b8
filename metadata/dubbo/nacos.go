package dubbo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Nacos is the format as Dubbo stores it in Nacos:
//
//	service providers:<interface>:<version>:<group>   (empty parts keep their colons), group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":20000,"weight":1,"enabled":true,"healthy":true,"ephemeral":true,
//	          "clusterName":"DEFAULT","metadata":{"protocol":"tri","path":"<interface>", … as in ZooKeeper}}
//
// One instance without protocol makes Java lose all providers of the service.
// Nacos's own weight stays 1; the Dubbo weight is metadata.
//
// An Entry of it has that JSON as its value, names sorted, and
// `10.0.0.1:20000` as its key, with `@<cluster>` where it is not DEFAULT.
type Nacos struct{ o Options }

// maxNacos is what Nacos 2.3 and newer let the metadata of an instance have
// unless configured otherwise; one instance above it spoils its whole batch.
const maxNacos = 1024

const defaultCluster = "DEFAULT"

// instance is what Nacos stores, with the fields in the order of the JSON.
type instance struct {
	IP          string            `json:"ip"`
	Port        uint16            `json:"port"`
	Weight      float64           `json:"weight"`
	Enabled     bool              `json:"enabled"`
	Healthy     bool              `json:"healthy"`
	Ephemeral   bool              `json:"ephemeral"`
	ClusterName string            `json:"clusterName"`
	Metadata    map[string]string `json:"metadata"`
}

// NewNacos returns the codec of the format in Nacos. The error names every
// option that cannot be used.
func NewNacos(o Options) (*Nacos, error) {
	o, err := defaults(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if o.MaxMetadata <= 0 {
		o.MaxMetadata = maxNacos
	}
	return &Nacos{o: o}, nil
}

// Encode implements metadata.Codec.
func (n *Nacos) Encode(s *registry.Service) ([]registry.Entry, error) { return n.o.encode(s, n.entry) }

// LeftOut implements metadata.Codec.
func (n *Nacos) LeftOut(s *registry.Service) error { return n.o.leftOut(s, n.entry) }

// Needs implements metadata.Codec: the format needs nothing else.
func (*Nacos) Needs([]registry.Entry) []metadata.Ref { return nil }

// Decode implements metadata.Codec.
func (*Nacos) Decode(entries, _ []registry.Entry) ([]*registry.Service, []metadata.Fault) {
	var all []found
	var faults []metadata.Fault
	for _, e := range entries {
		f, err := readInstance(e)
		if err != nil {
			faults = append(faults, metadata.Fault{Entry: e, Err: err})
			continue
		}
		all = append(all, f)
	}
	return services(all), faults
}

func (n *Nacos) entry(p provider) (registry.Entry, error) {
	key := serviceKey(p.iface)
	if err := checkNacosName(key); err != nil {
		return registry.Entry{}, err
	}
	must := slices.Concat(p.must, []param{{paramProtocol, p.protocol}, {paramPath, p.iface.Name}})
	if size := sizeOf(must); size > n.o.MaxMetadata {
		return registry.Entry{}, fmt.Errorf("%s: metadata of %d bytes, at most %d", p.iface.Name, size, n.o.MaxMetadata)
	}
	params, dropped := fit(must, p.may, n.o.MaxMetadata)
	i := instance{
		IP: p.host, Port: p.port, Weight: 1, Enabled: true, Healthy: true, Ephemeral: true,
		ClusterName: defaultCluster, Metadata: make(map[string]string, len(params)),
	}
	for _, q := range params {
		i.Metadata[q.key] = q.value
	}
	value, err := i.text()
	if err != nil {
		return registry.Entry{}, err
	}
	return registry.Entry{Group: n.group(key), Key: hostPort(p.host, p.port), Value: value},
		tooMuch(p, n.o.MaxMetadata, dropped)
}

func (n *Nacos) group(name string) registry.Group {
	return registry.Group{Kind: Kind, Namespace: n.o.Namespace, Group: n.o.Group, Name: name}
}

// checkNacosName keeps to what Nacos takes as a service name.
func checkNacosName(s string) error {
	if len(s) > 512 {
		return fmt.Errorf("service %.40q…: %d bytes long, at most 512", s, len(s))
	}
	for _, r := range s {
		if r > 0x7e {
			return fmt.Errorf("service %.80q: %q is not allowed in Nacos", s, r)
		}
	}
	return nil
}

func (i instance) text() (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(i); err != nil {
		return "", fmt.Errorf("write instance %s: %w", hostPort(i.IP, i.Port), err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

var errMetadata = errors.New("has no protocol in its metadata")

func readInstance(e registry.Entry) (found, error) {
	i := instance{Enabled: true, Healthy: true}
	if err := json.Unmarshal([]byte(e.Value), &i); err != nil {
		return found{}, fmt.Errorf("read instance: %w", err)
	}
	if err := checkAddress(i.IP, i.Port); err != nil {
		return found{}, err
	}
	protocol := i.Metadata[paramProtocol]
	if protocol == "" {
		return found{}, errMetadata
	}
	if len(i.Metadata) > maxParams {
		return found{}, fmt.Errorf("more than %d metadata keys", maxParams)
	}
	if err := checkProtocol(protocol); err != nil {
		return found{}, err
	}
	f, err := read(parsedURL{protocol: protocol, host: i.IP, port: i.Port, path: i.Metadata[paramPath], params: i.Metadata})
	if err != nil {
		return found{}, err
	}
	if key := serviceKey(f.iface); key != e.Group.Name {
		return found{}, fmt.Errorf("is of %q, in the service %q", key, e.Group.Name)
	}
	switch {
	case !i.Enabled || f.endpoint.Health == registry.Disabled:
		f.endpoint.Health = registry.Disabled
	case i.Healthy:
		f.endpoint.Health = registry.Healthy
	default:
		f.endpoint.Health = registry.Unhealthy
	}
	f.group = e.Group
	return f, nil
}
