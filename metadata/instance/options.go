package instance

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Options tune a codec of a plain format.
type Options struct {
	Root      string // ZooKeeper: the parent of the services; / for the top
	Namespace string // Nacos: the namespace id; empty is public
	Group     string // Nacos: the group; empty: DEFAULT_GROUP
	Names     Names
	Join      bool          // several services may share a name; otherwise the second is refused
	Protocol  string        // of endpoints that neither a rule nor their registry names one for
	Protocols []Rule        // the first that fits decides
	Mark      metadata.Mark // of the entries; its path is that of each endpoint
	Subsets   bool          // write meshSubset where the source reports it
	Tags      bool          // write dubbo.tag
	Reserve   int           // bytes of the registry's limit of metadata that are added later, such as the signature of a mark
}

// Rule says which protocol the endpoints of some services speak.
type Rule struct {
	Host     naming.Pattern // of the service's host or native name
	Port     uint16         // of the service, or of the endpoint if the service has none; 0: all
	Protocol string
}

// DefaultGroup is the group of Nacos where none is named.
const DefaultGroup = "DEFAULT_GROUP"

func defaults(o Options) (Options, error) {
	o.Root = "/" + strings.Trim(o.Root, "/")
	o.Group = cmp.Or(o.Group, DefaultGroup)
	problems := []error{metadata.CheckProtocol(o.Protocol), o.Names.check()}
	if err := checkRoot(o.Root); err != nil {
		problems = append(problems, err)
	}
	for i, r := range o.Protocols {
		if err := metadata.CheckProtocol(r.Protocol); err != nil {
			problems = append(problems, fmt.Errorf("protocols[%d]: %w", i, err))
		}
	}
	return o, errors.Join(problems...)
}

func checkRoot(root string) error {
	if root == "/" {
		return nil
	}
	for part := range strings.SplitSeq(root[1:], "/") {
		if err := checkPart(part); err != nil {
			return fmt.Errorf("root: %w", err)
		}
	}
	return nil
}

// protocolOf returns the protocol of an endpoint. A rule, which an operator wrote,
// overrides what the registry reports.
func (o *Options) protocolOf(s *registry.Service, e *registry.Endpoint) string {
	name := nativeOf(s)
	port := name.port
	if port == 0 {
		port = e.Port
	}
	for _, r := range o.Protocols {
		if _, fits := name.fits(r.Host); fits && (r.Port == 0 || r.Port == port) {
			return r.Protocol
		}
	}
	return cmp.Or(e.Protocol, s.Protocol, o.Protocol)
}

// FromFormat returns the options of a plain format by those of all formats.
func FromFormat(f format.Options) (Options, error) {
	o := Options{
		Root: f.Root, Namespace: f.Namespace, Group: f.Group, Names: Names{Pattern: f.Service}, Join: f.Join,
		Protocol: f.Protocol, Mark: f.Mark, Subsets: f.Subsets, Tags: f.Tags, Reserve: f.Reserve,
	}
	for _, n := range f.Names {
		host, err := naming.ParsePattern(n.Host)
		if err != nil {
			return o, fmt.Errorf("names: %w", err)
		}
		o.Names.Rules = append(o.Names.Rules, NameRule{Host: host, Port: n.Port, Service: n.Service})
		if n.Protocol != "" {
			o.Protocols = append(o.Protocols, Rule{Host: host, Port: n.Port, Protocol: n.Protocol})
		}
	}
	for _, r := range f.Protocols {
		host, err := naming.ParsePattern(r.Host)
		if err != nil {
			return o, fmt.Errorf("protocols: %w", err)
		}
		o.Protocols = append(o.Protocols, Rule{Host: host, Port: r.Port, Protocol: r.Protocol})
	}
	return o, nil
}
