package serviceentry

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Codec encodes services as ServiceEntries: one for each protocol and interface, or one
// for each protocol if the service has no interfaces:
//
//	group   {Kind: service-entry, Namespace: <namespace>, Name: <host>}
//	entry   ""                {"host":…,"port":{"number":50051,"name":"grpc-tri","protocol":"GRPC"},…}
//	entry   10.0.0.1:20001    {"address":"10.0.0.1","port":20001,"weight":100,…}
//
// Each endpoint is an entry, so that guards count endpoints and changes are small. The
// host of an interface has all its providers, of any application and format, like
// consumers in the registry see them. The host of a plain name is exclusive to one
// service, because one name may belong to different services in two formats.
type Codec struct{ o Options }

// New returns a codec. The error names every invalid option.
func New(o Options) (*Codec, error) {
	o, err := o.defaults()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	return &Codec{o: o}, nil
}

// Kind returns the name of the format, which is the Kind of its groups.
func (*Codec) Kind() string { return Kind }

// Encode implements metadata.Encoder.
func (c *Codec) Encode(s *registry.Service) ([]registry.Entry, error) {
	byProtocol, refused := c.endpoints(s)
	attributes, omitted := attributesOf(s)
	if len(byProtocol) == 0 {
		// The service is known to have no endpoints. Its hosts stay in the mesh.
		byProtocol = map[string][]registry.Entry{}
		for _, e := range s.Endpoints {
			byProtocol[c.protocol(s, e)] = nil
		}
		if len(s.Endpoints) == 0 {
			byProtocol[c.protocol(s, registry.Endpoint{})] = nil
		}
	}
	var out []registry.Entry
	for protocol, endpoints := range byProtocol {
		for _, name := range meshNames(s, protocol) {
			out = append(out, c.groupEntries(s, name, attributes, endpoints)...)
		}
	}
	out = registry.Sorted(out)
	return metadata.Encoded(out, []error{refused, omitted, metadata.PathOmission(s, "mesh")})
}

// meshNames returns the names of a service in the mesh.
func meshNames(s *registry.Service, protocol string) []naming.MeshName {
	if len(s.Interfaces) == 0 {
		return []naming.MeshName{{Name: cmp.Or(s.Application, string(s.Name)), Protocol: protocol}}
	}
	names := make([]naming.MeshName, len(s.Interfaces))
	for i, in := range s.Interfaces {
		names[i] = naming.MeshName{Protocol: protocol, Key: metadata.KeyOf(in)}
	}
	return names
}

// endpoints returns the entries of the offered endpoints by protocol, without groups, and
// why other endpoints are left out.
func (c *Codec) endpoints(s *registry.Service) (map[string][]registry.Entry, error) {
	var refused []error
	byProtocol := make(map[string][]registry.Entry, 1)
	shared, omitted := labelsOf(nil, s.Attributes), make(map[string]int)
	for i, e := range s.Endpoints {
		if !e.Health.Offered() {
			continue
		}
		address, err := c.address(e)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		protocol := c.protocol(s, e)
		if byProtocol[protocol] == nil {
			byProtocol[protocol] = make([]registry.Entry, 0, len(s.Endpoints)-i)
		}
		labels := c.limitLabels(labelsOf(shared, e.Attributes), omitted)
		byProtocol[protocol] = append(byProtocol[protocol], endpointEntry(address, labels, e))
	}
	if len(omitted) > 0 {
		most := slices.Max(slices.Collect(maps.Values(omitted)))
		refused = append(refused, &metadata.Omission{Reason: fmt.Sprintf(
			"labels %.200q left out of %s: an endpoint of a ServiceEntry has at most %d",
			strings.Join(slices.Sorted(maps.Keys(omitted)), ", "), registry.Counted(most, "endpoint", "endpoints"), maxLabels)})
	}
	return byProtocol, errors.Join(refused...)
}

// address returns the address of an endpoint: an IP address, or a host name in lower
// case. It fails for an address that Istio does not accept.
func (c *Codec) address(e registry.Endpoint) (string, error) {
	ip, err := netip.ParseAddr(e.Host)
	name := strings.ToLower(strings.TrimSuffix(e.Host, "."))
	switch {
	case err == nil && ip.Zone() == "" && e.Port > 0:
		return ip.Unmap().String(), nil
	case err == nil, metadata.CheckAddress(name, e.Port) != nil, !dnsLabels(name):
		return "", fmt.Errorf("endpoint %s: Istio requires an IP address or a host name, and a port",
			naming.Quote(e.Address()))
	case c.o.IPOnly:
		return "", fmt.Errorf("endpoint %s: data planes do not resolve host names", naming.Quote(e.Address()))
	}
	return name, nil
}

// endpointEntry returns the entry of one endpoint.
func endpointEntry(address string, labels map[string]string, e registry.Endpoint) registry.Entry {
	value := Endpoint{Address: address, Port: e.Port, Weight: e.Weight, Labels: labels}
	if e.ZeroWeight {
		value.Weight = 1 // the minimum of Istio; no weight means its default
	}
	if isLocality(e.Zone) {
		value.Locality = e.Zone
	}
	return registry.Entry{Key: net.JoinHostPort(value.Address, strconv.Itoa(int(e.Port))), Value: value.encode()}
}

// labelsOf returns labels, overridden by the attributes that Kubernetes accepts as
// labels. The attributes of the service are labels of each endpoint, because subsets are
// formed by labels of endpoints.
func labelsOf(labels map[string]string, attributes registry.Attributes) map[string]string {
	out, cloned := labels, false
	for k, v := range attributes {
		if !labelKey(k) || !labelValue(v) {
			continue
		}
		if !cloned {
			out, cloned = make(map[string]string, len(labels)+len(attributes)), true
			maps.Copy(out, labels)
		}
		out[k] = v
	}
	return out
}

// limitLabels returns at most maxLabels labels: first those by which subsets are formed,
// then others by name. It counts the labels that it leaves out, by key.
func (c *Codec) limitLabels(labels map[string]string, omitted map[string]int) map[string]string {
	if len(labels) <= maxLabels { // nearly always
		return labels
	}
	names := slices.SortedFunc(maps.Keys(labels), func(a, b string) int {
		return cmp.Or(c.rank(a)-c.rank(b), cmp.Compare(a, b))
	})
	fitting := make(map[string]string, maxLabels)
	for i, k := range names {
		if i < maxLabels {
			fitting[k] = labels[k]
		} else {
			omitted[k]++
		}
	}
	return fitting
}

func (c *Codec) rank(label string) int {
	if label == c.o.SubsetLabel || label == "version" || label == "app" {
		return 0
	}
	return 1
}

// groupEntries returns the entries of one ServiceEntry.
func (c *Codec) groupEntries(
	s *registry.Service, name naming.MeshName, attributes map[string]string, endpoints []registry.Entry,
) []registry.Entry {
	host := c.o.Hosts.Of(name)
	g := registry.Group{Kind: Kind, Namespace: c.o.Namespace, Name: host, Exclusive: name.Name != ""}
	header := Header{
		Host: host, VIP: c.vip(host), Port: c.port(name.Protocol), External: c.o.External, ExportTo: c.o.ExportTo,
		Labels:      map[string]string{LabelRegistry: c.o.Hosts.Registry},
		Annotations: c.annotations(s, name, attributes),
	}
	if name.Name == "" {
		header.Keys = []string{name.Key.String()}
	}
	out := make([]registry.Entry, 0, 2+len(endpoints)) //nolint:mnd // the head and the subsets
	out = append(out, registry.Entry{Group: g, Key: HeaderKey, Value: metadata.JSON(header)})
	if c.o.SubsetLabel != "" {
		out = append(out, subsetsEntry(g, c.o.SubsetLabel))
	}
	seen := make(map[string]bool, len(endpoints))
	for _, e := range endpoints {
		if !seen[e.Key] {
			seen[e.Key] = true
			e.Group = g
			out = append(out, e)
		}
	}
	return out
}

// attributePrefix begins the annotations with attributes of a service. Labels cannot hold
// all attributes.
const attributePrefix = "xds-bridge.attribute/"

// annotations returns the annotations with the mark, the name and the attributes.
func (c *Codec) annotations(s *registry.Service, name naming.MeshName, attributes map[string]string) map[string]string {
	mark := c.o.Mark
	mark.Path = s.Path
	out := map[string]string{AnnotationMark: mark.String(), AnnotationName: name.Name}
	if name.Name == "" {
		out[AnnotationName] = name.Key.String()
	}
	maps.Copy(out, attributes)
	return out
}

// attributesOf returns the attributes of a service as annotations, and why others are
// left out.
func attributesOf(s *registry.Service) (map[string]string, error) {
	out, size := make(map[string]string, len(s.Attributes)), 0
	var omitted []string
	for _, k := range slices.Sorted(maps.Keys(s.Attributes)) {
		name, v := strings.ReplaceAll(k, "/", "."), s.Attributes[k]
		_, exists := out[attributePrefix+name] // a/b and a.b have the same name; a.b is used
		if !labelKey(k) || len(name) > maxName || len(v) > maxAnnotation || !printable(v) || exists {
			continue
		}
		if n := len(attributePrefix) + len(name) + len(v); size+n > maxAnnotations {
			omitted = append(omitted, k)
		} else {
			out[attributePrefix+name], size = v, size+n
		}
	}
	if len(omitted) == 0 {
		return out, nil
	}
	return out, &metadata.Omission{Reason: fmt.Sprintf(
		"attributes %.200q left out: the annotations of a ServiceEntry would be too large", strings.Join(omitted, ", "))}
}

func (c *Codec) protocol(s *registry.Service, e registry.Endpoint) string {
	return strings.ToLower(cmp.Or(e.Protocol, s.Protocol, c.o.Protocol))
}

// port returns the port of a protocol. As Istio requires, the name of the port begins with
// Istio's protocol. It ends with the registry's protocol if that is a DNS label.
func (c *Codec) port(protocol string) Port {
	number, ok := c.o.Ports[protocol]
	if !ok {
		number = otherPort
	}
	istio := cmp.Or(istioProtocols()[protocol], "TCP")
	name := strings.ToLower(istio)
	if suffix := "-" + protocol; name != protocol && dnsLabel(name+suffix) && len(name+suffix) <= maxPortName {
		name += suffix
	}
	return Port{Number: number, Name: name, Protocol: istio}
}

// vip returns the virtual address of a host, or an empty text if no range is configured.
func (c *Codec) vip(host string) string {
	if !c.o.VIPs.IsValid() {
		return ""
	}
	return VIP(c.o.VIPs, host, 0).String()
}

// VIP returns the n-th choice of an address for a host within a range, by the hash of the
// host. All replicas return the same address. The first choices of all hosts are in one
// half of the range, the second choices in one half of the remaining range, and so on.
// The result is invalid if no range remains. In a range of more than two addresses, the
// first and the last are not used.
func VIP(within netip.Prefix, host string, n int) netip.Addr {
	first, remaining, choice := uint64(0), uint64(1), n
	switch bits := within.Addr().BitLen() - within.Bits(); {
	case bits > 62:
		first, remaining = 1, 1<<62
	case bits > 1:
		first, remaining = 1, 1<<bits-2
	case bits == 1:
		remaining = 2
	}
	for ; n > 0; n-- {
		first, remaining = first+half(remaining), remaining-half(remaining)
	}
	if remaining == 0 {
		return netip.Addr{}
	}
	sum := sha256.Sum256([]byte(host + "\x00" + strconv.Itoa(choice)))
	base := within.Masked().Addr().As16()
	low := binary.BigEndian.Uint64(base[8:]) + first + binary.BigEndian.Uint64(sum[:8])%half(remaining)
	binary.BigEndian.PutUint64(base[8:], low)
	addr := netip.AddrFrom16(base)
	if within.Addr().Is4() {
		addr = addr.Unmap()
	}
	return addr
}

// half returns the larger half of n.
func half(n uint64) uint64 { return n/2 + n%2 }

// HeaderKey is the key of the entry of the service. All other entries of the group are
// endpoints, except for that of SubsetsKey.
const HeaderKey = registry.HeadKey

// Header is a ServiceEntry without its endpoints. In JSON it is the value of its entry.
type Header struct {
	Host        string            `json:"host"`
	VIP         string            `json:"vip,omitempty"` // see VIP
	Port        Port              `json:"port"`
	External    bool              `json:"external,omitempty"`
	ExportTo    []string          `json:"exportTo,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Keys        []string          `json:"keys,omitempty"` // service keys of the host
}

// Port is the one port of a service.
type Port struct {
	Number   uint16 `json:"number"`
	Name     string `json:"name"`
	Protocol string `json:"protocol"` // of Istio
}

// ParseHeader decodes the entry of a service. It fails if a Codec did not write it.
func ParseHeader(e registry.Entry) (Header, error) {
	var h Header
	err := decode(e, &h)
	return h, err
}

// ParseEndpoint decodes the entry of an endpoint. It fails if a Codec did not write it.
func ParseEndpoint(e registry.Entry) (Endpoint, error) {
	var canonical Endpoint
	if canonical.parseCanonical(e.Value) {
		return canonical, nil
	}
	var other Endpoint // on the heap, because reflection uses it
	err := decode(e, &other)
	return other, err
}

func decode(e registry.Entry, into any) error {
	if err := json.Unmarshal([]byte(e.Value), into); err != nil {
		return fmt.Errorf("%s: entry %q: %w", e.Group, e.Key, err)
	}
	return nil
}
