// Package dubbo writes and reads the interface-level format of Apache Dubbo:
// one provider URL per interface and address, in ZooKeeper and in Nacos, as
// Java Dubbo 3.3 and dubbo-go 3.3 store and need it. It is pure: no I/O, no
// time, no state.
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

// Kind is the Group.Kind of every entry of this format.
const Kind = "dubbo-interface"

// The defaults of Options.
const (
	DefaultRoot     = "/dubbo"
	DefaultGroup    = "DEFAULT_GROUP"
	DefaultProtocol = "tri"
)

// Options tune a codec. The zero value is usable as it is.
type Options struct {
	Root         string        // ZooKeeper: the parent that holds the interfaces; empty: DefaultRoot
	Services     string        // ZooKeeper: the parent that holds the applications; empty: DefaultServices
	Namespace    string        // Nacos: the namespace id; empty is public
	Group        string        // Nacos: the group; empty: DefaultGroup
	Protocol     string        // of endpoints that neither a rule nor their registry names one for; empty: DefaultProtocol
	Protocols    []Rule        // the first that matches decides
	Applications []AppRule     // which application a service belongs to; the first that fits decides
	Mark         metadata.Mark // whose the entries are; the path is that of each endpoint
	Subsets      bool          // write meshSubset where the source reports it
	Tags         bool          // write dubbo.tag, which hides a provider from consumers without the tag
	MaxMetadata  int           // bytes of names and values that one provider may have; 0: the form's own limit
	Reserve      int           // bytes of that which are added later, as by the signature of a mark
}

// Rule says which protocol the endpoints of some services speak.
type Rule struct {
	Host     string // naming.Pattern of the service's host or native name; empty matches all
	Port     uint16 // of the service, or where it has none of the endpoint; 0 matches all
	Protocol string
}

// resolved fills in what was left empty and refuses what cannot be used, all
// errors at once. A form has a limit of metadata where no option sets one.
func (o Options) resolved(kind string, limit int) (Options, error) {
	o.Root = "/" + strings.Trim(cmp.Or(o.Root, DefaultRoot), "/")
	o.Services = "/" + strings.Trim(cmp.Or(o.Services, DefaultServices), "/")
	o.Group = cmp.Or(o.Group, DefaultGroup)
	o.Protocol = cmp.Or(o.Protocol, DefaultProtocol)
	o.Protocols, o.Applications = slices.Clone(o.Protocols), slices.Clone(o.Applications)
	if o.MaxMetadata <= 0 {
		o.MaxMetadata = limit
	}
	o.MaxMetadata -= o.Reserve
	var problems []error
	problem := func(field string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", field, err))
		}
	}
	problem("root", checkRoot(o.Root))
	problem("services", checkRoot(o.Services))
	problem("protocol", checkProtocol(o.Protocol))
	for i, r := range o.Protocols {
		problem(fmt.Sprintf("protocols[%d].protocol", i), checkProtocol(r.Protocol))
		if r.Host != "" {
			_, err := naming.ParsePattern(r.Host)
			problem(fmt.Sprintf("protocols[%d].host", i), err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return o, fmt.Errorf("%s: %w", kind, err)
	}
	return o, nil
}

// resolvedForNacos is resolved, and refuses what no server takes.
func (o Options) resolvedForNacos(kind string) (Options, error) {
	o, err := o.resolved(kind, metadata.MaxNacosMetadata)
	if err != nil {
		return o, err
	}
	if err := metadata.CheckNacosService(o.Namespace, o.Group, "any"); err != nil {
		return o, fmt.Errorf("%s: %w", kind, err)
	}
	return o, nil
}

// protocols say which protocol the endpoints of a service speak. A rule is an
// explicit word of the operator and wins over what the registry says.
type protocols struct {
	rules  []Rule // that fit the service's host
	port   uint16 // of the service; 0: the endpoint's counts
	others string // of endpoints that name none
}

func (o *Options) protocolsOf(s *registry.Service) protocols {
	host, port := splitName(s.Name)
	return protocols{o.rulesOf(host), port, cmp.Or(s.Protocol, o.Protocol)}
}

func (p protocols) of(e *registry.Endpoint) string {
	port := p.port
	if port == 0 {
		port = e.Port
	}
	return cmp.Or(ruled(p.rules, port), e.Protocol, p.others)
}

// rulesOf returns the rules that fit a host.
func (o *Options) rulesOf(host string) (rules []Rule) {
	for _, r := range o.Protocols {
		if r.fits(host) {
			rules = append(rules, r)
		}
	}
	return rules
}

// ruled returns the protocol of the first rule that fits, empty where none does.
func ruled(rules []Rule, port uint16) string {
	for _, r := range rules {
		if r.Port == 0 || r.Port == port {
			return r.Protocol
		}
	}
	return ""
}

func (r Rule) fits(host string) bool {
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
			format.ZooKeeper: format.Form(fromFormat, NewZooKeeper),
			format.Nacos:     format.Form(fromFormat, NewNacos),
		},
	}
}

// FormatApplication describes the application-level format.
func FormatApplication() format.Descriptor {
	return format.Descriptor{
		Name: KindApplication, Root: DefaultServices, Protocol: DefaultProtocol, Lookup: format.ByMapping,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(fromApplicationFormat, NewZooKeeperApp),
			format.Nacos:     format.Form(fromApplicationFormat, NewNacosApp),
		},
	}
}

// fromFormat returns what the formats of Dubbo take of the options that all
// formats have.
func fromFormat(f format.Options) (Options, error) {
	o := Options{
		Root: f.Root, Namespace: f.Namespace, Group: f.Group, Protocol: f.Protocol,
		Mark: f.Mark, Subsets: f.Subsets, Tags: f.Tags, Reserve: f.Reserve,
	}
	for _, n := range f.Names {
		if n.Service != "" {
			o.Applications = append(o.Applications, AppRule{Host: n.Host, Port: n.Port, Application: n.Service})
		}
		if n.Protocol != "" {
			o.Protocols = append(o.Protocols, Rule{Host: n.Host, Port: n.Port, Protocol: n.Protocol})
		}
	}
	for _, r := range f.Protocols {
		o.Protocols = append(o.Protocols, Rule(r))
	}
	return o, nil
}

func fromApplicationFormat(f format.Options) (Options, error) {
	o, err := fromFormat(f)
	o.Services, o.Root = f.Root, f.Documents
	return o, err
}

var errReserved = errors.New("is a path of Dubbo's own")

// checkInterface refuses service keys that no consumer could ask for or that
// would reach into the path of another one.
func checkInterface(i registry.Interface) error {
	if _, err := naming.ParseServiceKey(serviceKey(i)); err != nil {
		return err //nolint:wrapcheck // says what is wrong with which key
	}
	switch i.Name {
	case "config", "mapping", "metadata":
		return fmt.Errorf("interface %q %w", i.Name, errReserved)
	}
	return nil
}

// serviceKey writes the key `providers:<interface>:<version>:<group>`.
func serviceKey(i registry.Interface) string {
	return naming.ServiceKey{
		Category: naming.Providers, Interface: i.Name, Version: i.Version, Group: i.Group,
	}.String()
}

// checkRoot takes a path of which each part can be a parent.
func checkRoot(root string) error {
	for part := range strings.SplitSeq(root[1:], "/") {
		if part == "" || part == "." || part == ".." || escapeNode(part) != part {
			return fmt.Errorf("%s cannot be a znode", naming.Quote(part))
		}
	}
	return nil
}

func checkProtocol(s string) error { return metadata.CheckProtocol(s) } //nolint:wrapcheck // says what is wrong with which

func checkAddress(host string, port uint16) error { return metadata.CheckAddress(host, port) } //nolint:wrapcheck // as above

// splitName takes a mesh row's name `fqdn:port` apart; for any other name the
// port is 0.
func splitName(name registry.Name) (host string, port uint16) {
	s := string(name)
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if n, err := strconv.ParseUint(s[i+1:], 10, 16); err == nil {
			return s[:i], uint16(n)
		}
	}
	return s, 0
}

// hostPort joins a host and a port, an IPv6 host in brackets.
func hostPort(host string, port uint16) string { return string(appendHostPort(nil, host, port)) }

func appendHostPort(b []byte, host string, port uint16) []byte {
	if strings.IndexByte(host, ':') >= 0 {
		b = append(append(append(b, '['), host...), ']')
	} else {
		b = append(b, host...)
	}
	return strconv.AppendUint(append(b, ':'), uint64(port), 10)
}
