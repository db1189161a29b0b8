// Package format is what a format is to all that lists, configures or uses
// formats. It is pure: no I/O, no time, no state.
package format

import (
	"fmt"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// The kinds of registries that formats have forms for.
const (
	ZooKeeper = "zookeeper"
	Nacos     = "nacos"
)

// A Lookup is how consumers look services up.
type Lookup int

// The ways to look a service up.
const (
	ByName    Lookup = iota // by plain names, which a pattern may make
	ByKey                   // by service keys
	ByMapping               // by interfaces, which documents map to applications
)

// A Descriptor describes one format.
type Descriptor struct {
	Name     string // in configurations; the Group.Kind of every entry
	Root     string // the parent path in ZooKeeper by default
	Protocol string // by default, of instances that name none
	Lookup   Lookup
	OwnNames bool           // no other format names services in Nacos as it does
	Untyped  bool           // entries do not say which format they are of
	Forms    map[string]New // its codecs, by kind of registry; others cannot hold it

	// NacosNames returns the services in Nacos that report a plain name; nil: the
	// one of that name does.
	NacosNames func(name string) []string
}

// New makes the codec of a format in one kind of registry. It has the methods
// that the kind's adapter asks for besides.
type New func(Options) (metadata.Codec, error)

// Form makes a New of the constructor of one codec.
func Form[O any, C metadata.Codec](options func(Options) (O, error), construct func(O) (C, error)) New {
	return func(o Options) (metadata.Codec, error) {
		own, err := options(o)
		if err != nil {
			return nil, err
		}
		c, err := construct(own)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// Codec makes the codec of a format in a kind of registry, with the methods of C.
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
		return none, fmt.Errorf("format %s: its codec is none that %s can use", d.Name, kind)
	}
	return c, nil
}

// Options say how one bridge or application uses a format. Each format takes of
// them what it knows.
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
	Mark      metadata.Mark // whose the entries are
	Subsets   bool          // write meshSubset where the source reports it
	Tags      bool          // write dubbo.tag
	Reserve   int           // bytes of one instance's metadata that are added later
}

// Name names some services, says their protocol, or both.
type Name struct {
	Host     string // naming.Pattern of the service's host or native name
	Port     uint16 // of the service; 0: all
	Service  string // a * stands for what the star of Host stands for
	Protocol string
}

// ProtocolRule says which protocol the endpoints of some services speak. Those
// of Options.Names go before.
type ProtocolRule struct {
	Host     string // as in Name
	Port     uint16
	Protocol string
}
