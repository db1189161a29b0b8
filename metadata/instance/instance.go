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

// An Instance is one entry of a plain format, in no form yet.
type Instance struct {
	Service  string            // its name in the registry
	Ports    []Port            // at least one; the first identifies it
	Share    uint32            // of the calls, in hundredths of a normal one; 0: unknown
	Health   registry.Health   // of an instance that was read
	Path     string            // of its URLs; empty: none
	Metadata map[string]string // before Own is added: the users' alone
}

// Port is one address of an instance.
type Port struct {
	Protocol string // empty: unknown
	Host     string
	Port     uint16
}

// Key returns what identifies the instance within its service.
func (i Instance) Key() string { return i.Ports[0].Address() }

// Address returns host and port, an IPv6 host in brackets.
func (p Port) Address() string { return registry.Endpoint{Host: p.Host, Port: p.Port}.Address() }

// A Form is how one format stores instances.
type Form struct {
	Kind   string                           // the format's name, the Kind of its groups
	Speaks func(family convert.Family) bool // whether consumers call such endpoints; nil: all
	Joins  func(ports []Port) bool          // whether one instance may have all of these ports; nil: it has one

	Own        func(i Instance) map[string]string // the format's own metadata, which is never left out; nil: none
	Extract    func(i *Instance) error            // sets ports, health and weight by that, and removes it; nil: there is none
	Weightless bool                               // instances have no weights
	Paths      bool                               // instances have paths
	Reserved   []string                           // keys that consumers use themselves: values of users are not written
	WithDubbo  bool                               // consumers may read keys of Dubbo, but for the revision of an application
}

// A NodeForm is how a format stores an instance in a znode.
type NodeForm struct {
	Form
	Prefix   string                 // of the names of our nodes, before host and port
	Named    func(node string) bool // whether the name of a node may be of the format; nil: any
	Replaces metadata.Replacement   // how a changed instance replaces the old one

	Write   func(i Instance) string                          // the data of a node in canonical form
	Read    func(name string, data []byte) (Instance, error) // the instance of a node, with all of its metadata
	Foreign func(data []byte) error                          // of which other format a node is; nil: of none that is known
}

// A RecordForm is how a format stores an instance in Nacos.
type RecordForm struct {
	Form
	Scale convert.Scale // of weights
	IPv4  bool          // consumers cannot call an IPv6 address from Nacos

	// Name returns the name of a service for a protocol. Parse undoes it; false for a
	// service that is not of the format. Nil: the name as it is.
	Name  func(service, protocol string) string
	Parse func(service string) (string, bool)
}

// join joins the endpoints of one instance if the format allows it.
func (f *Form) join(all []site) []site {
	byID := make(map[string]int)
	var out []site
	for _, s := range all {
		at, ok := byID[s.endpoint.Instance]
		if ok && s.endpoint.Instance != "" {
			ports := append(slices.Clone(out[at].ports), s.ports...)
			slices.SortFunc(ports, Port.compare)
			if f.Joins != nil && f.Joins(ports) {
				out[at].ports, out[at].may = ports, merge(out[at].may, s.may)
				continue
			}
		}
		byID[s.endpoint.Instance] = len(out)
		out = append(out, s)
	}
	return out
}

// compare orders the ports of an instance: http first, then grpc, then all others. The
// first is the one of formats with one port.
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
	return cmp.Or(rank(p)-rank(o), cmp.Compare(p.Host, o.Host), cmp.Compare(p.Port, o.Port), cmp.Compare(p.Protocol, o.Protocol))
}

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

// pair is one key of metadata.
type pair struct{ key, value string }

// The keys of a protocol for which a format has no field: one that users may use as
// well, and ours if they do.
const (
	KeyProtocol    = "protocol"
	KeyOwnProtocol = metadata.MarkKey + ".protocol"
)

// OwnProtocol returns the metadata with the protocol of an instance, none if it is the
// usual one. Its key is the given one, or ours if the user has a key protocol.
func OwnProtocol(i Instance, usual, key string) map[string]string {
	p := i.Ports[0].Protocol
	if i.Metadata[KeyProtocol] != "" {
		key = KeyOwnProtocol
	} else if p == usual {
		return nil
	}
	return map[string]string{key: p}
}

// ExtractProtocol sets the protocol of the first port by that metadata. The key
// protocol of an instance of others counts if its value is known.
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

// SortPorts sorts the ports of an instance.
func SortPorts(ports []Port) { slices.SortFunc(ports, Port.compare) }

// ParseAddress reads host:port, an IPv6 host in brackets.
func ParseAddress(s string) (Port, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Port{}, fmt.Errorf("%.80q is no host:port", s)
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

// The keys of metadata that the codecs use. Those that begin with mesh, and
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

// isOfModel reports whether a key is one of a field of the model, or of a mesh.
func isOfModel(key string) bool {
	switch key {
	case "", metadata.MarkKey, keyMeshWeight, keyMeshLocality, keyMeshHost, keyMeshCluster, keyMeshSubset, keyInstance, keyTag:
		return true
	}
	return false
}

// isOfRegistration reports whether a key is for the server of Nacos.
func (c *codec) isOfRegistration(key string) bool {
	return c.record != nil && strings.HasPrefix(key, "preserved.")
}

// isOfDubbo reports whether consumers of Dubbo that read the same service would take an
// instance with this key for one of an application.
func isOfDubbo(key string) bool {
	return strings.HasPrefix(key, "dubbo.metadata") || key == "dubbo.endpoints" || strings.HasPrefix(key, "dubbo.subscribed-services")
}

// isReserved reports whether a key is not for metadata of users.
func (c *codec) isReserved(key string) bool {
	return slices.Contains(c.form.Reserved, key) || c.isOfRegistration(key) ||
		isOfDubbo(key) && (!c.form.WithDubbo || key == metadata.KeyDubboRevision)
}
