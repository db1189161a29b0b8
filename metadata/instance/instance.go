// Package instance is what the formats of plain services have in common: a
// service is a name, and a list of instances that are hosts and ports with a
// weight and metadata. Each format adds how one instance is written. It is
// pure: no I/O, no time, no state.
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

// An Instance is one entry of a plain format before it takes its form.
type Instance struct {
	Service  string            // its name in the registry
	Ports    []Port            // at least one; the first is the one it is known by
	Share    uint32            // of the calls, in hundredths of a normal one; 0: not known
	Health   registry.Health   // of one that was read
	Metadata map[string]string // of one that is written as yet what is its user's
}

// Port is one address of an instance.
type Port struct {
	Protocol string // empty: not known
	Host     string
	Port     uint16
}

// Key returns what identifies the instance within its service.
func (i Instance) Key() string { return i.Ports[0].Address() }

// Address returns host and port, an IPv6 host in brackets.
func (p Port) Address() string { return registry.Endpoint{Host: p.Host, Port: p.Port}.Address() }

// A Form is how one format has instances, in whatever registry. It is a value
// without state.
type Form interface {
	// Kind is the format's name, the Kind of its groups.
	Kind() string

	// Speaks reports whether consumers of the format call such endpoints.
	Speaks(family convert.Family) bool

	// Joins reports whether one instance may have all of these ports, in their
	// order.
	Joins(ports []Port) bool

	Keys
}

// Keys is the metadata by which a format reports what it has no other place for.
type Keys interface {
	// Own returns the metadata that the format itself has for an instance; it
	// is before all other.
	Own(i Instance) map[string]string

	// Extract makes ports, health and weight of the metadata that Own writes, and
	// takes it out.
	Extract(i *Instance) error

	// Reserved reports whether consumers of the format read something into a
	// key, so that what others store under it cannot be written.
	Reserved(key string) bool
}

// A NodeForm is how a format writes an instance to a node of ZooKeeper.
type NodeForm interface {
	Form
	NodeNames

	// Write returns the data of a node in canonical form.
	Write(i Instance) string

	// Read returns the instance of a node. The metadata is all there is.
	Read(name string, data []byte) (Instance, error)
}

// NodeNames is how a format names its nodes, and which of them a change leaves.
type NodeNames interface {
	// Prefix begins the names of nodes that are written; host and port follow.
	Prefix() string

	// Named reports whether a node may be of the format by its name.
	Named(node string) bool

	// Replaces says how a changed instance takes the place of the one before.
	Replaces() metadata.Replacement
}

// A RecordForm is how a format writes an instance to Nacos.
type RecordForm interface {
	Form
	RecordValues

	// Name returns what the service of a protocol is called, Parse undoes it;
	// false for a service that is not of the format.
	Name(service, protocol string) string
	Parse(service string) (string, bool)
}

// RecordValues is what consumers make of the fields of an instance in Nacos.
type RecordValues interface {
	// Scale is that of the weights.
	Scale() convert.Scale

	// IPv6 reports whether consumers can call an IPv6 address from Nacos.
	IPv6() bool
}

// SinglePort is embedded by forms whose instances have one port each.
type SinglePort struct{}

// Joins implements Form.
func (SinglePort) Joins([]Port) bool { return false }

// PlainNames is embedded by forms that name services in Nacos as they are.
type PlainNames struct{}

// Name implements RecordForm.
func (PlainNames) Name(service, _ string) string { return service }

// Parse implements RecordForm.
func (PlainNames) Parse(service string) (string, bool) { return service, true }

// join puts endpoints of one instance together where the format allows it.
func join(form Form, all []site) []site {
	byID := make(map[string]int)
	var out []site
	for _, s := range all {
		at, ok := byID[s.endpoint.Instance]
		if ok && s.endpoint.Instance != "" {
			ports := append(slices.Clone(out[at].ports), s.ports...)
			slices.SortFunc(ports, Port.compare)
			if form.Joins(ports) {
				out[at].ports, out[at].may = ports, merge(out[at].may, s.may)
				continue
			}
		}
		byID[s.endpoint.Instance] = len(out)
		out = append(out, s)
	}
	return out
}

// compare orders the ports of an instance: http first, then grpc, then all
// others, which is the port that formats of one port know them by.
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

// The keys that say a protocol for which a format has no place: a word that
// users have too, and one of our own where they do.
const (
	KeyProtocol    = "protocol"
	KeyOwnProtocol = metadata.MarkKey + ".protocol"
)

// OwnProtocol returns the metadata that says the protocol of an instance,
// none where it is the usual one. It is under the given key, or under one
// of our own where the user has a key protocol.
func OwnProtocol(i Instance, usual, key string) map[string]string {
	p := i.Ports[0].Protocol
	if i.Metadata[KeyProtocol] != "" {
		key = KeyOwnProtocol
	} else if p == usual {
		return nil
	}
	return map[string]string{key: p}
}

// ExtractProtocol makes that metadata the protocol of the first port. What is
// under protocol is one where a bridge wrote it, or where known says so of what
// others store.
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

// SortPorts puts the ports of an instance in their order.
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
		return Port{}, err //nolint:wrapcheck // says what is wrong with which
	}
	return Port{Host: host, Port: uint16(n)}, nil
}

// The keys of metadata that have a meaning here. Those that begin with mesh,
// and endPointWeight, are the ones dubbo-go's xDS registry knows.
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

// ofModel reports whether a key reports a field of the model, or of a mesh:
// all formats read and write it alike.
func ofModel(key string) bool {
	switch key {
	case "", metadata.MarkKey, keyMeshWeight, keyMeshLocality, keyMeshHost, keyMeshCluster, keyMeshSubset, keyInstance, keyTag:
		return true
	}
	return false
}

// ofRegistration reports whether a key speaks of a registration itself: to the
// server of Nacos, or to consumers of Dubbo that look into the same place.
func (c *codec) ofRegistration(key string) bool {
	_, nacos := c.form.(RecordForm)
	return nacos && strings.HasPrefix(key, "preserved.") || strings.HasPrefix(key, "dubbo.metadata") || key == "dubbo.endpoints" ||
		strings.HasPrefix(key, "dubbo.subscribed-services")
}

// reserved reports whether what is under a key says something to consumers
// of the format, or of its registry: it is no metadata of a user.
func (c *codec) reserved(key string) bool { return c.form.Reserved(key) || c.ofRegistration(key) }
