package serviceentry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The version and kind of an Object.
const (
	APIVersion = "networking.istio.io/v1"
	ObjectKind = "ServiceEntry"
)

// The labels and annotations that an Object has in addition to those of its Header.
const (
	LabelManager   = "app.kubernetes.io/managed-by"
	Manager        = "xds-bridge"
	AnnotationKeys = "xds-bridge/keys" // the service keys, one per line
)

// An Object is a ServiceEntry or a DestinationRule as Kubernetes stores it, with the
// fields that a Codec writes. Its name is the host.
type Object struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   ObjectMeta `json:"metadata"`
	Spec       ObjectSpec `json:"spec"`
	Elsewhere  bool       `json:"-"` // it is stored under another name than the host
}

// ObjectMeta is the metadata of an object.
type ObjectMeta struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

// ObjectSpec is the specification of an object. A DestinationRule has host, subsets and
// exportTo. A ServiceEntry has all fields except host and subsets.
type ObjectSpec struct {
	Host       string     `json:"host,omitempty"`
	Subsets    []Subset   `json:"subsets,omitempty"`
	Hosts      []string   `json:"hosts,omitempty"`
	Addresses  []string   `json:"addresses,omitempty"`
	Ports      []Port     `json:"ports,omitempty"`
	Location   string     `json:"location,omitempty"`
	Resolution string     `json:"resolution,omitempty"`
	ExportTo   []string   `json:"exportTo,omitempty"`
	Endpoints  []Workload `json:"endpoints,omitempty"`
	Unknown    bool       `json:"-"` // it has other fields, which a Codec does not write
}

// A Workload is one endpoint of an object.
type Workload struct {
	Address  string            `json:"address"`
	Ports    map[string]uint16 `json:"ports,omitempty"` // by the name of the service's port
	Labels   map[string]string `json:"labels,omitempty"`
	Locality string            `json:"locality,omitempty"`
	Weight   uint32            `json:"weight,omitempty"`
}

// NewObject returns the object of a group. The address is that of the service; it may be
// the zero value. It fails for entries that a Codec did not write.
func NewObject(group registry.Group, entries []registry.Entry, address netip.Addr) (Object, error) {
	i := slices.IndexFunc(entries, func(e registry.Entry) bool { return e.Key == HeaderKey })
	if i < 0 {
		return Object{}, fmt.Errorf("%s: the head is missing", group)
	}
	h, err := ParseHeader(entries[i])
	if err != nil {
		return Object{}, err
	}
	o := Object{
		APIVersion: APIVersion, Kind: ObjectKind,
		Metadata: ObjectMeta{
			Name: group.Name, Namespace: group.Namespace,
			Labels: map[string]string{LabelManager: Manager}, Annotations: make(map[string]string),
		},
		Spec: ObjectSpec{Hosts: []string{h.Host}, Ports: []Port{h.Port}, Location: h.location(), ExportTo: h.ExportTo},
	}
	maps.Copy(o.Metadata.Labels, h.Labels)
	maps.Copy(o.Metadata.Annotations, h.Annotations)
	if len(h.Keys) > 0 {
		o.Metadata.Annotations[AnnotationKeys] = strings.Join(h.Keys, "\n")
	}
	if address.IsValid() {
		o.Spec.Addresses = []string{address.String()}
	}
	for _, e := range registry.Sorted(entries) {
		if !registry.IsEndpoint(e.Key) {
			continue
		}
		p, err := ParseEndpoint(e)
		if err != nil {
			return Object{}, err
		}
		o.Spec.Endpoints = append(o.Spec.Endpoints, Workload{
			Address: p.Address, Ports: map[string]uint16{h.Port.Name: p.Port},
			Labels: p.Labels, Locality: p.Locality, Weight: p.Weight,
		})
	}
	o.Spec.Resolution = o.Spec.resolution()
	return o, nil
}

// resolution returns how proxies resolve the endpoints of a specification.
func (s *ObjectSpec) resolution() string {
	if slices.ContainsFunc(s.Endpoints, func(w Workload) bool { return IsName(w.Address) }) {
		return "DNS"
	}
	return "STATIC"
}

// location returns the location of a service: in the mesh or external.
func (h Header) location() string {
	if h.External {
		return "MESH_EXTERNAL"
	}
	return "MESH_INTERNAL"
}

// Owner returns the registry.Stored.Owner of the object, which may be empty.
func (o Object) Owner() string {
	m, err := metadata.ParseMark(o.Metadata.Annotations[AnnotationMark])
	if err != nil {
		return ""
	}
	return m.Owner
}

// Group returns the group of an object.
func (o Object) Group() registry.Group {
	// A released object has no mark any more, but is still exclusive.
	exclusive := o.Metadata.Annotations[AnnotationName] != "" && o.Metadata.Annotations[AnnotationKeys] == ""
	return registry.Group{
		Kind: Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, Exclusive: exclusive,
	}
}

// Entries undoes NewObject, and returns the entries in order. If the object has other
// fields, the head is one that a Codec does not write. The addresses of services are
// within a range.
func (o Object) Entries(within netip.Prefix) []registry.Entry {
	s, group := o.Spec, o.Group()
	h := Header{
		External: s.Location == "MESH_EXTERNAL" || s.Location == "", ExportTo: s.ExportTo, VIP: o.address(within),
		Labels: ours(o.Metadata.Labels), Annotations: ours(o.Metadata.Annotations),
	}
	if keys := h.Annotations[AnnotationKeys]; keys != "" {
		h.Keys = strings.Split(keys, "\n")
		delete(h.Annotations, AnnotationKeys)
	}
	value := metadata.JSON(o.Spec) // a head that a Codec does not write
	if len(s.Hosts) == 1 && len(s.Ports) == 1 && len(s.Addresses) <= 1 && s.Resolution == s.resolution() &&
		!s.Unknown && s.Host == "" && len(s.Subsets) == 0 {
		h.Host, h.Port = s.Hosts[0], s.Ports[0]
		value = metadata.JSON(h)
	}
	all := []registry.Entry{{Group: group, Key: HeaderKey, Value: value}}
	for _, w := range s.Endpoints {
		e := Endpoint{
			Address: w.Address, Port: w.Ports[h.Port.Name], Labels: w.Labels, Locality: w.Locality, Weight: w.Weight,
		}
		key := net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
		all = append(all, registry.Entry{Group: group, Key: key, Value: e.encode()})
	}
	slices.SortStableFunc(all, registry.Entry.Compare)
	return slices.CompactFunc(all, func(a, b registry.Entry) bool { return a.Key == b.Key })
}

// Same reports whether two objects of one kind are equal, except for their versions and
// for labels and annotations of other writers.
func (o Object) Same(p Object) bool {
	if o.Kind != RuleKind {
		return slices.Equal(o.Entries(netip.Prefix{}), p.Entries(netip.Prefix{}))
	}
	return o.Spec.Unknown == p.Spec.Unknown && metadata.JSON(o.Spec) == metadata.JSON(p.Spec) &&
		maps.Equal(ours(o.Metadata.Labels), ours(p.Metadata.Labels)) &&
		maps.Equal(ours(o.Metadata.Annotations), ours(p.Metadata.Annotations))
}

// address returns the host's first choice of an address if the object's address is any
// choice of the host, and otherwise the object's address.
func (o Object) address(within netip.Prefix) string {
	if len(o.Spec.Addresses) == 0 {
		return ""
	}
	have, err := netip.ParseAddr(o.Spec.Addresses[0])
	if err == nil && o.IsChoice(have, within) {
		return VIP(within, o.Spec.Hosts[0], 0).String()
	}
	return o.Spec.Addresses[0]
}

// IsChoice reports whether an address is a choice of the host, see VIP.
func (o Object) IsChoice(address netip.Addr, within netip.Prefix) bool {
	if !within.IsValid() || len(o.Spec.Hosts) == 0 {
		return false
	}
	for n := 0; ; n++ {
		switch at := VIP(within, o.Spec.Hosts[0], n); {
		case !at.IsValid():
			return false
		case at == address:
			return true
		}
	}
}

// ours returns the labels or annotations that belong to a Header.
func ours(all map[string]string) map[string]string {
	out := make(map[string]string, len(all))
	for k, v := range all {
		if strings.HasPrefix(k, "xds-bridge/") || strings.HasPrefix(k, attributePrefix) {
			out[k] = v
		}
	}
	return out
}

// ParseObject decodes a Kubernetes object in JSON.
func ParseObject(text []byte) (o Object, err error) {
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("decode Kubernetes object: %w", err)
	}
	return o, nil
}

// UnmarshalJSON decodes a specification and sets Unknown.
func (s *ObjectSpec) UnmarshalJSON(text []byte) error {
	type plain ObjectSpec
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if strict.Decode((*plain)(s)) == nil {
		return nil
	}
	*s = ObjectSpec{Unknown: true}
	return json.Unmarshal(text, (*plain)(s))
}
