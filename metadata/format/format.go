// Package format describes formats to the code that lists, configures or uses them. It
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

// A Lookup is how consumers look services up.
type Lookup int

// The kinds of Lookup.
const (
	ByName    Lookup = iota // by plain names
	ByKey                   // by service keys
	ByMapping               // by interfaces, which are mapped to applications
)

// A Descriptor describes one format.
type Descriptor struct {
	Name     string // in configurations; the Group.Kind of every entry
	Root     string // the default parent path in ZooKeeper
	Protocol string // of instances that name none
	Lookup   Lookup
	OwnNames bool           // no other format has the same names of services in Nacos
	Untyped  bool           // entries do not say of which format they are
	Forms    map[string]New // its codecs by kind of registry

	// NacosNames returns the services in Nacos of a plain name; nil: the one with that
	// name.
	NacosNames func(name string) []string
}

// New returns the codec of a format for one kind of registry, with the methods that the
// adapter of that kind uses.
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

// Codec returns the codec of a format for a kind of registry, as C.
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
		return none, fmt.Errorf("format %s: %s cannot use its codec", d.Name, kind)
	}
	return c, nil
}

// Options are those of all formats. Each uses some of them.
type Options struct {
	Root      string // ZooKeeper: the parent path of the services
	Documents string // ZooKeeper: the parent path of what instances refer to
	Namespace string // Nacos: the namespace id; empty is public
	Group     string // Nacos: the group; empty: DEFAULT_GROUP
	Service   string // the pattern of plain names, with one * for the name; empty: *
	Join      bool   // several services may have one plain name
	Protocol  string // of endpoints that neither a rule nor their registry names one for
	Names     []Name // the first that fits decides
	Protocols []ProtocolRule
	Mark      metadata.Mark // of the entries
	Subsets   bool          // write meshSubset where the source reports it
	Tags      bool          // write dubbo.tag
	Reserve   int           // bytes of metadata that are added later

	LegacyNames bool // Nacos: write services of Dubbo under their names without empty parts as well
}

// Name names some services, says their protocol, or both.
type Name struct {
	Host     string // naming.Pattern of the service's host or native name
	Port     uint16 // of the service; 0: all
	Service  string // a * is replaced by the text that the star of Host matched
	Protocol string
}

// ProtocolRule says which protocol the endpoints of some services speak. Options.Names
// precede it.
type ProtocolRule struct {
	Host     string // as in Name
	Port     uint16
	Protocol string
}
