// Package format describes formats for the code that lists, configures or uses them. It
// is pure: no I/O, no time, no state.
package format

import (
	"fmt"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// The kinds of registries.
const (
	ZooKeeper = "zookeeper"
	Nacos     = "nacos"
)

// A Lookup is the way consumers find services.
type Lookup int

// The kinds of Lookup.
const (
	ByName    Lookup = iota // by plain names
	ByKey                   // by service keys
	ByMapping               // by interfaces, which a mapping maps to applications
)

// A Descriptor describes one format.
type Descriptor struct {
	Name     string // in configurations, and the Group.Kind of every entry
	Root     string // the default parent path in ZooKeeper
	Protocol string // the default protocol of instances
	Lookup   Lookup
	OwnNames bool           // no other format has the same service names in Nacos
	Untyped  bool           // entries do not name their format
	Forms    map[string]New // the codecs by kind of registry

	// NacosNames returns the names of the services in Nacos for a plain name. Nil means
	// the plain name itself.
	NacosNames func(name string) []string
}

// New returns the codec of a format for one kind of registry. The codec has the methods
// that the adapter of that kind uses.
type New func(Options) (metadata.Codec, error)

// Form returns a New that calls the constructor of a codec.
func Form[C metadata.Codec](construct func(Options) (C, error)) New {
	return func(o Options) (metadata.Codec, error) {
		c, err := construct(o)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// Codec returns the codec of a format for a kind of registry, as C. It fails if there is
// none, or if it does not have the methods of C.
func Codec[C metadata.Codec](d Descriptor, kind string, o Options) (C, error) {
	var none C
	construct, ok := d.Forms[kind]
	if !ok {
		return none, fmt.Errorf("format %s has no form in %s", d.Name, kind)
	}
	made, err := construct(o)
	if err != nil {
		return none, err
	}
	c, ok := made.(C)
	if !ok {
		return none, fmt.Errorf("format %s: its codec lacks methods that %s requires", d.Name, kind)
	}
	return c, nil
}

// Options are the options of all formats. Each format uses some of them.
type Options struct {
	Root      string // ZooKeeper: the parent path of the services
	Documents string // ZooKeeper: the parent path of the documents that instances refer to
	Namespace string // Nacos: the namespace id; empty is public
	Group     string // Nacos: the group; empty is DEFAULT_GROUP
	Service   string // the pattern of plain names, with one * for the name; empty is *
	Join      bool   // several services may have one plain name
	Protocol  string // the protocol of endpoints without a rule or a reported protocol
	Names     []Name // the first that matches decides
	Protocols []ProtocolRule
	Mark      metadata.Mark // of the entries
	Subsets   bool          // write meshSubset if the source reports it
	Tags      bool          // write dubbo.tag
	Reserve   int           // bytes of metadata that are added later

	// LegacyNames writes services of Dubbo in Nacos also under their names without
	// empty parts.
	LegacyNames bool
}

// Name sets the name or the protocol of some services, or both.
type Name struct {
	Host     string // a naming.Pattern of the service's host or native name
	Port     uint16 // of the service; 0 for all
	Service  string // a * is replaced by the text that the star of Host matched
	Protocol string
}

// ProtocolRule sets the protocol of the endpoints of some services. Options.Names take
// precedence.
type ProtocolRule struct {
	Host     string // as in Name
	Port     uint16
	Protocol string
}
