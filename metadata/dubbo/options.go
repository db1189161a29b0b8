// Package dubbo encodes and decodes the two formats of Apache Dubbo in ZooKeeper and in
// Nacos, as Java Dubbo 3.3 and dubbo-go 3.3 store them: one provider URL per interface
// and address, or one instance per application and address. It is pure: no I/O, no time,
// no state.
package dubbo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Kind is the Group.Kind of every entry of the interface-level format.
const Kind = "dubbo-interface"

// The defaults of Options.
const (
	DefaultRoot     = "/dubbo"
	DefaultGroup    = "DEFAULT_GROUP"
	DefaultProtocol = "tri"
)

// Options are the options of all formats. Root defaults to DefaultRoot, or to
// DefaultServices for the application-level format, Documents to DefaultRoot, Group to
// DefaultGroup, and Protocol to DefaultProtocol.
type Options = format.Options

// options are the Options of a codec with all defaults.
type options struct {
	Options
	limit int // of the names and values of one provider, in bytes
}

// withDefaults returns options with all defaults. The limit is that of the form. The
// protocols of names come before the other rules. The error names every invalid option.
func withDefaults(o Options, kind string, limit int) (options, error) {
	root := DefaultRoot
	if kind == KindApplication {
		root = DefaultServices
	} else {
		o.Documents = "" // the interface-level format has no documents
	}
	o.Root = "/" + strings.Trim(cmp.Or(o.Root, root), "/")
	o.Documents = "/" + strings.Trim(cmp.Or(o.Documents, DefaultRoot), "/")
	o.Group = cmp.Or(o.Group, DefaultGroup)
	o.Protocol = cmp.Or(o.Protocol, DefaultProtocol)
	var rules []format.ProtocolRule
	for _, n := range o.Names {
		if n.Protocol != "" {
			rules = append(rules, format.ProtocolRule{Host: n.Host, Port: n.Port, Protocol: n.Protocol})
		}
	}
	o.Names, o.Protocols = slices.Clone(o.Names), append(rules, o.Protocols...)
	var problems []error
	problem := func(field string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", field, err))
		}
	}
	problem("root", checkRoot(o.Root))
	problem("metadata", checkRoot(o.Documents))
	problem("protocol", checkProtocol(o.Protocol))
	for i, r := range o.Protocols {
		problem(fmt.Sprintf("protocols[%d].protocol", i), checkProtocol(r.Protocol))
		if r.Host != "" {
			_, err := naming.ParsePattern(r.Host)
			problem(fmt.Sprintf("protocols[%d].host", i), err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return options{}, fmt.Errorf("%s: %w", kind, err)
	}
	return options{o, limit - o.Reserve}, nil
}

// withNacosDefaults is like withDefaults. It also refuses options that Nacos does not
// accept.
func withNacosDefaults(original Options, kind string) (options, error) {
	o, err := withDefaults(original, kind, metadata.MaxNacosMetadata)
	if err != nil {
		return o, err
	}
	if err := metadata.CheckNacosService(o.Namespace, o.Group, "any"); err != nil {
		return o, fmt.Errorf("%s: %w", kind, err)
	}
	return o, nil
}

// protocols determines the protocols of the endpoints of a service. A rule, which an
// operator wrote, overrides the protocol that the registry reports.
type protocols struct {
	rules    []format.ProtocolRule // the rules that match the service's host
	port     uint16                // of the service; 0 means that of the endpoint
	fallback string
}

func (o *options) protocolsOf(s *registry.Service) protocols {
	host, port := splitName(s.Name)
	return protocols{o.rulesOf(host), port, cmp.Or(s.Protocol, o.Protocol)}
}

func (p protocols) protocolOf(e *registry.Endpoint) string {
	port := p.port
	if port == 0 {
		port = e.Port
	}
	return cmp.Or(protocolByRule(p.rules, port), e.Protocol, p.fallback)
}

// rulesOf returns the rules that match a host.
func (o *options) rulesOf(host string) (rules []format.ProtocolRule) {
	for _, r := range o.Protocols {
		if matches(r, host) {
			rules = append(rules, r)
		}
	}
	return rules
}

// protocolByRule returns the protocol of the first rule that matches a port. It is empty
// if none does.
func protocolByRule(rules []format.ProtocolRule, port uint16) string {
	for _, r := range rules {
		if r.Port == 0 || r.Port == port {
			return r.Protocol
		}
	}
	return ""
}

func matches(r format.ProtocolRule, host string) bool {
	if r.Host == "" {
		return true
	}
	p, err := naming.ParsePattern(r.Host)
	return err == nil && p.MatchHost(host)
}

// Format describes the interface-level format.
func Format() format.Descriptor {
	return format.Descriptor{
		Name: Kind, Root: DefaultRoot, Protocol: DefaultProtocol, Lookup: format.ByKey, OwnNames: true,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(NewZooKeeper),
			format.Nacos:     format.Form(NewNacos),
		},
	}
}

// FormatApplication describes the application-level format.
func FormatApplication() format.Descriptor {
	return format.Descriptor{
		Name: KindApplication, Root: DefaultServices, Protocol: DefaultProtocol, Lookup: format.ByMapping,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(NewZooKeeperApp),
			format.Nacos:     format.Form(NewNacosApp),
		},
	}
}

// checkRoot refuses a path with a part that cannot be a znode.
func checkRoot(root string) error {
	for part := range strings.SplitSeq(root[1:], "/") {
		if part == "" || part == "." || part == ".." || escapeNode(part) != part {
			return fmt.Errorf("%s cannot be a znode", naming.Quote(part))
		}
	}
	return nil
}

// splitName splits the name fqdn:port of a mesh service. The port is 0 for any other
// name.
func splitName(name registry.Name) (host string, port uint16) {
	s := string(name)
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if n, err := strconv.ParseUint(s[i+1:], 10, 16); err == nil {
			return s[:i], uint16(n)
		}
	}
	return s, 0
}
