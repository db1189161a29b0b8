// Package instance is the common part of the formats of plain services: a service is a
// name and a list of instances, which are hosts and ports with a weight and metadata.
// Each format has a Form, which says how one instance is stored. It is pure: no I/O, no
// time, no state.
package instance

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An Instance is one entry of a plain format, before it is encoded for a registry.
type Instance struct {
	Service  string            // its name in the registry
	Ports    []Port            // at least one; the first one identifies the instance
	Share    uint32            // of the calls, in hundredths of a normal share; 0 if unknown
	Health   registry.Health   // of an instance that was read
	Path     string            // of its URLs; empty without a path
	Metadata map[string]string // the users' metadata, and later that of Form.Own
}

// Port is one address of an instance.
type Port struct {
	Protocol string // empty if unknown
	Host     string
	Port     uint16
}

// Key returns the key of the instance within its service.
func (i Instance) Key() string { return i.Ports[0].Address() }

// Address returns host and port, with an IPv6 host in brackets.
func (p Port) Address() string { return registry.Endpoint{Host: p.Host, Port: p.Port}.Address() }

// A Form defines how one format stores instances.
type Form struct {
	// Kind is the name of the format and the Kind of its groups.
	Kind string

	// Speaks reports whether consumers call endpoints of a family of protocols. Nil
	// means all families.
	Speaks func(family convert.Family) bool

	// Joins reports whether one instance may have all of the given ports. Nil means
	// that an instance has one port.
	Joins func(ports []Port) bool

	// Own returns the format's own metadata, which is never left out. It may be nil.
	Own func(i Instance) map[string]string

	// Extract sets ports, health and weight by the format's own metadata, and removes
	// that from the metadata. It may be nil.
	Extract func(i *Instance) error

	Weightless bool     // instances have no weights
	Paths      bool     // instances have paths
	Reserved   []string // keys that consumers interpret; users' values under them are not written
	WithDubbo  bool     // consumers may read keys of Dubbo, except for the revision of an application
}

// A NodeForm defines how a format stores an instance in a znode.
type NodeForm struct {
	Form

	// Prefix begins the names of our nodes, before host and port.
	Prefix string

	// Named reports whether the name of a node can be one of the format. Nil accepts
	// every name.
	Named func(node string) bool

	// Replaces is how a changed instance replaces the old one.
	Replaces metadata.Replacement

	// Write returns the data of a node in canonical form.
	Write func(i Instance) string

	// Read returns the instance of a node, with all of its metadata.
	Read func(name string, data []byte) (Instance, error)

	// Foreign returns an error that names the other format of a node. It may be nil.
	Foreign func(data []byte) error
}

// A NacosForm defines how a format stores an instance in Nacos.
type NacosForm struct {
	Form
	Scale convert.Scale // of weights
	IPv4  bool          // consumers cannot call an IPv6 address from Nacos

	// Name returns the name of a service for a protocol. Parse undoes Name; it returns
	// false for a service of another format. Nil keeps the name.
	Name  func(service, protocol string) string
	Parse func(service string) (string, bool)
}

// join joins the endpoints of one instance if the format allows that.
func (f *Form) join(all []site) []site {
	byID := make(map[string]int)
	var out []site
	for _, s := range all {
		at, ok := byID[s.endpoint.Instance]
		if ok && s.endpoint.Instance != "" {
			ports := append(slices.Clone(out[at].ports), s.ports...)
			slices.SortFunc(ports, Port.compare)
			if f.Joins != nil && f.Joins(ports) {
				out[at].ports, out[at].optional = ports, merge(out[at].optional, s.optional)
				continue
			}
		}
		byID[s.endpoint.Instance] = len(out)
		out = append(out, s)
	}
	return out
}

// compare orders the ports of an instance: HTTP first, then gRPC, then all others.
// Formats with one port use the first.
func (p Port) compare(o Port) int {
	rank := func(p Port) int {
		switch convert.FamilyOf(p.Protocol) {
		case convert.HTTP:
			return 0
		case convert.GRPC:
			return 1
		default:
			return 2
		}
	}
	return cmp.Or(rank(p)-rank(o), cmp.Compare(p.Host, o.Host), cmp.Compare(p.Port, o.Port),
		cmp.Compare(p.Protocol, o.Protocol))
}

// merge appends the pairs of b whose keys a does not have.
func merge(a, b []pair) []pair {
	have := make(map[string]bool, len(a))
	for _, p := range a {
		have[p.key] = true
	}
	for _, p := range b {
		if !have[p.key] {
			a = append(a, p)
		}
	}
	return a
}

// pair is one key of metadata with its value.
type pair struct{ key, value string }

// The keys for the protocol in formats without a field for it. KeyProtocol may also be a
// key of users. KeyOwnProtocol is used if it is.
const (
	KeyProtocol    = "protocol"
	KeyOwnProtocol = metadata.MarkKey + ".protocol"
)

// OwnProtocol returns the metadata with the protocol of an instance. It is empty for the
// default protocol. Its key is the given one, or KeyOwnProtocol if the user's metadata
// has KeyProtocol.
func OwnProtocol(i Instance, defaultProtocol, key string) map[string]string {
	p := i.Ports[0].Protocol
	if i.Metadata[KeyProtocol] != "" {
		key = KeyOwnProtocol
	} else if p == defaultProtocol {
		return nil
	}
	return map[string]string{key: p}
}

// ExtractProtocol sets the protocol of the first port by the metadata of OwnProtocol. In
// an instance of another owner, KeyProtocol counts only if its value is a known
// protocol.
func ExtractProtocol(i *Instance, known func(protocol string) bool) {
	key := KeyOwnProtocol
	if p := i.Metadata[KeyProtocol]; i.Metadata[key] == "" && (i.Metadata[metadata.MarkKey] != "" || known(p)) {
		key = KeyProtocol
	}
	if p := i.Metadata[key]; p != "" {
		i.Ports[0].Protocol = p
	}
	delete(i.Metadata, KeyOwnProtocol)
	delete(i.Metadata, key)
}

// SortPorts sorts the ports of an instance: HTTP first, then gRPC, then all others.
func SortPorts(ports []Port) { slices.SortFunc(ports, Port.compare) }

// ParseAddress parses host:port, with an IPv6 host in brackets.
func ParseAddress(s string) (Port, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Port{}, fmt.Errorf("%.80q is not host:port", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Port{}, fmt.Errorf("%.80q: port %.20q is not within 1 to 65535", s, port)
	}
	if err := metadata.CheckAddress(host, uint16(n)); err != nil {
		return Port{}, err
	}
	return Port{Host: host, Port: uint16(n)}, nil
}

// The keys of metadata that the codecs use. Keys that begin with mesh, and
// endPointWeight, are those of dubbo-go's xDS registry.
const (
	keyMeshWeight   = "endPointWeight"
	keyMeshLocality = "meshLocality"
	keyMeshHost     = "meshHostAddr"
	keyMeshCluster  = "meshClusterID"
	keyMeshSubset   = "meshSubset"
	keyInstance     = "instanceId"
	keyVersion      = "version"
	keyGroup        = "group"
	keyRegion       = "region"
	keyZone         = "zone"
	keyTag          = "dubbo.tag"
	keyTLS          = "tlsMode" // of a mesh's endpoint
)

// isOfModel reports whether a key belongs to a field of the model, or to a mesh.
func isOfModel(key string) bool {
	switch key {
	case "", metadata.MarkKey, keyMeshWeight, keyMeshLocality, keyMeshHost, keyMeshCluster, keyMeshSubset,
		keyInstance, keyTag:
		return true
	}
	return false
}

// isOfRegistration reports whether a key is for the server of Nacos.
func (c *codec) isOfRegistration(key string) bool {
	return c.nacosForm != nil && strings.HasPrefix(key, "preserved.")
}

// isOfDubbo reports whether consumers of Dubbo that read the same service would take an
// instance with this key for an instance of an application.
func isOfDubbo(key string) bool {
	return strings.HasPrefix(key, "dubbo.metadata") || key == "dubbo.endpoints" ||
		strings.HasPrefix(key, "dubbo.subscribed-services")
}

// isReserved reports whether a key must not be written for users.
func (c *codec) isReserved(key string) bool {
	return slices.Contains(c.form.Reserved, key) || c.isOfRegistration(key) ||
		isOfDubbo(key) && (!c.form.WithDubbo || key == metadata.KeyDubboRevision)
}
