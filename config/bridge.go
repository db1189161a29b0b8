package config

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// Bridge leads from one registry to another.
type Bridge struct {
	Name     string     `yaml:"name" need:"it is a part of the mark on every entry" check:"name" doc:"The name of the bridge, unique in the file. It is part of the mark of every entry."`
	From     string     `yaml:"from" need:"name one of registries" doc:"The source: the registry that is read."`
	To       string     `yaml:"to" need:"name one of registries" doc:"The target: the registry that is written."`
	Listen   string     `yaml:"listen" doc:"The address at which istiod connects to the bridge, as in its configSources. Only for bridges into a mesh, which require it."`
	Formats  []Format   `yaml:"formats" need:"such as [dubbo-interface]" doc:"The formats of the services. Services of a mesh are written in every listed format. Services of a registry are read in the listed formats, each at its root or in its group; they are written in the format they were read in. Into a mesh, the formats only say what is read."`
	Reads    []Format   `yaml:"reads" doc:"The formats to read, if they differ from the formats to write. Only between registries. Each service is then written in every format listed under formats."`
	Select   Select     `yaml:"select" doc:"The services and addresses that are copied."`
	Names    []NameRule `yaml:"names" doc:"What a host of the mesh provides if no service key is published for it. The first rule that matches the host applies; a rule that an earlier one always shadows is an error. Rules for interface, version, group and keys apply to all bridges from the same mesh, in the order of the file. service and protocol apply only to this bridge."`
	Metadata Metadata   `yaml:"metadata" doc:"Which attributes of a service are copied, and under which keys. The rules apply in the order keep, drop, rename, values, add."`
	Policy   string     `yaml:"policy" default:"sync" enum:"sync|upsert-only|create-only|read-only" doc:"What the bridge may do. sync: create, update and delete. upsert-only: create and update. create-only: create. read-only: nothing."`
	Guard    Guard      `yaml:"guard" doc:"The deletion guard."`
}

// Select says which services and addresses pass a bridge.
type Select struct {
	Include       []string       `yaml:"include" check:"pattern" filled:"to let none pass remove the bridge, or write exclude: ['*']" doc:"Patterns of the services to copy, with at most one *. From a mesh: hosts. From another registry: interfaces, service keys such as providers:org.acme.*, or native names. Without it, all services are copied."`
	Exclude       []string       `yaml:"exclude" check:"pattern" doc:"Patterns of services that are skipped even if include matches."`
	SkipMutualTLS bool           `yaml:"skipMutualTLS" doc:"Skip endpoints that may reject plaintext callers according to the policy of the mesh."`
	Allow         []netip.Prefix `yaml:"allow" doc:"Networks whose addresses are copied even if they are loopback, link-local, multicast or cloud metadata addresses."`
}

// NameRule maps a mesh host to the interface it provides, a service to its
// name in formats with plain names, or both.
type NameRule struct {
	Host      string   `yaml:"host" need:"such as *.shop.svc.cluster.local" check:"pattern" doc:"A pattern of hosts of the mesh or, in a rule for service, of native names. * matches any text."`
	Port      uint16   `yaml:"port" doc:"A service port. 0 matches every port, including an HTTP port next to the RPC port."`
	Interface string   `yaml:"interface" check:"key" doc:"The interface that the host provides. A * is replaced by the text that the * of host matches."`
	Keys      []string `yaml:"keys" check:"serviceKey" doc:"Service keys such as providers:org.acme.Orders:1.0:, for a port that provides several interfaces. Replaces interface, version and group."`
	Service   string   `yaml:"service" check:"plain" doc:"The name of the service in formats with plain names; in dubbo-application, the name of the application. A * works as in interface. Empty: the name of the application."`
	Version   string   `yaml:"version" check:"key" doc:"The version of the interface."`
	Group     string   `yaml:"group" check:"key" doc:"The group of the interface."`
	Protocol  string   `yaml:"protocol" check:"protocol" doc:"The RPC protocol. Empty: the protocol of the format."`
}

// Metadata says which attributes of services pass a bridge, and under which keys.
type Metadata struct {
	Keep   []string          `yaml:"keep" filled:"to let none pass write drop: ['*']" doc:"Patterns of the keys to copy. Without it, all keys are copied."`
	Drop   []string          `yaml:"drop" doc:"Patterns of the keys to skip even if keep matches."`
	Rename map[string]string `yaml:"rename" doc:"Old key: new key. If a service already has the new key, its value stays, the old key is dropped, and status reports that."`
	Values []ValueRule       `yaml:"values" doc:"Values to replace. The first rule that matches applies."`
	Add    map[string]string `yaml:"add" doc:"Keys and values to set on every service. They replace the service's own values."`
}

// ValueRule replaces one value of a key by another.
type ValueRule struct {
	Key  string `yaml:"key" need:"the key whose value is replaced" doc:"The key, after rename."`
	From string `yaml:"from" doc:"The value that is replaced."`
	To   string `yaml:"to" doc:"The new value. Empty: the key is dropped."`
}

// Rules returns the rules that are applied to the attributes of each service.
func (m Metadata) Rules() metadata.Rules {
	r := metadata.Rules{Keep: m.Keep, Drop: m.Drop, Rename: m.Rename, Add: m.Add}
	for _, v := range m.Values {
		r.Values = append(r.Values, metadata.ValueRule(v))
	}
	return r
}

func (m Metadata) validate(v *validator, path string) {
	if err := m.Rules().Check(); err != nil {
		v.errorf(path, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// Guard says how reluctantly a bridge deletes.
type Guard struct {
	Mode         string   `yaml:"mode" default:"enforce" enum:"enforce|warn|off" doc:"enforce: too many deletions are held. warn: they are only reported. off: the guard does not check."`
	Share        float64  `yaml:"share" default:"0.3" doc:"The largest part of a bridge's services that may lose all endpoints within window, and of its endpoints that may be deleted. Further deletions are held. 0 and 1: no limit."`
	AtLeast      int      `yaml:"atLeast" default:"10" check:"count" doc:"The number of endpoints that do not count against share within window. They must be reported as removed by the source, and other endpoints of their service must remain."`
	Window       Duration `yaml:"window" default:"1h" doc:"How long a loss counts. Also how long a host in a mesh stays, without endpoints, if its service is missing but was not reported as removed."`
	LastEndpoint Duration `yaml:"lastEndpoint" default:"30s" doc:"How long the deletion of the last endpoint of a service waits."`
	Settle       Duration `yaml:"settle" default:"1m" doc:"How long an entry waits that is missing from a full read of the source, without a reported removal, until the guard decides."`
	Confirm      Duration `yaml:"confirm" default:"10m" doc:"How long after the start of a hold a full read over a new connection may confirm the deletions. 0s: only an operator can release a hold."`
}

func (b Bridge) validate(v *validator, path string) {
	registries := v.Registries
	for key, name := range map[string]string{"from": b.From, "to": b.To} {
		if _, ok := registries[name]; !ok && name != "" {
			v.errorf(path+"."+key, "unknown registry %q%s", name, suggest(name, slices.Collect(maps.Keys(registries))))
		}
	}
	if m := registries[b.From].Istiod; m != nil && m.Address == "" {
		v.errorf(path+".from", "%q has no istiod to read from; set its address", b.From)
	}
	if b.From == b.To && b.From != "" {
		v.errorf(path+".to", "is the same registry as from, %q; name two registries", b.From)
	}
	if registries[b.From].Settings().Mesh != nil && registries[b.To].Settings().Mesh != nil {
		v.errorf(path+".to", "a bridge from a mesh into a mesh is not supported in this version; "+
			"join meshes with Istio's own multi-cluster")
	}
	b.validateListen(v, path, registries)
	b.validateFormats(v, path, registries)
}

// A Pattern is a pattern that selects services, with its path in the bridge.
type Pattern struct{ Path, Text string }

// Patterns returns the patterns of the bridge that select services.
func (b Bridge) Patterns() []Pattern {
	var all []Pattern
	walk("", reflect.ValueOf(b), field{}, func(path string, x reflect.Value, f field) {
		if f.check == "pattern" && x.Kind() == reflect.String {
			all = append(all, Pattern{path, x.String()})
		}
	})
	return all
}

func (b Bridge) validateListen(v *validator, path string, registries map[string]Registry) {
	to, known := registries[b.To]
	switch {
	case !known:
	case to.Istiod == nil && b.Listen != "":
		v.errorf(path+".listen", "only istiod connects there, and %q is not a mesh with an istiod; leave it out", b.To)
	case to.Istiod != nil && b.Listen == "":
		v.errorf(path+".listen", "missing; a bridge into a mesh listens for istiod, such as at \":15031\"")
	case to.Istiod != nil:
		v.checkText(path+".listen", b.Listen, "listener")
	}
}

func (r NameRule) validate(v *validator, path string) {
	if r.Interface == "" && r.Service == "" && len(r.Keys) == 0 {
		v.errorf(path+".interface", "missing; set interface, keys for several interfaces, "+
			"or service for formats with plain names")
	}
	if len(r.Keys) > 0 && r.Interface+r.Version+r.Group != "" {
		v.errorf(path+".keys", "replaces interface, version and group; write all interfaces as keys")
	}
	for key, text := range map[string]string{"interface": r.Interface, "service": r.Service} {
		if strings.Count(text, "*") > strings.Count(r.Host, "*") {
			v.errorf(path+"."+key,
				"must not have more stars than host: each is replaced by what a star of host matches (got %q)", text)
		}
	}
}

// ServiceKeys returns the service keys that the rule gives a host. The key of
// interface may contain a star.
func (r NameRule) ServiceKeys() (all []naming.ServiceKey) {
	if r.Interface != "" {
		key := naming.ServiceKey{Category: naming.Providers, Interface: r.Interface, Version: r.Version, Group: r.Group}
		all = append(all, key)
	}
	for _, text := range r.Keys {
		if k, err := naming.ParseServiceKey(text); err == nil { // the tag check refuses others
			all = append(all, k)
		}
	}
	return all
}

// covers reports whether the rule matches every host and port that o matches.
// A star in o's host is matched as any text.
func (r NameRule) covers(o NameRule) bool {
	host, err := naming.ParsePattern(r.Host)
	return err == nil && (r.Port == 0 || r.Port == o.Port) && (strings.EqualFold(r.Host, o.Host) || host.MatchHost(o.Host))
}

// shadows reports whether a later rule can never take effect. For interfaces the
// first rule that matches counts, even without keys; for service the first
// that sets one.
func (r NameRule) shadows(later NameRule) bool {
	return r.covers(later) && (len(later.ServiceKeys()) > 0 || r.Service != "" && later.Service != "")
}

// validateNames refuses rules that never take effect: those that an earlier rule
// of the bridge shadows, and those that disagree with a covering rule of an
// earlier bridge from the same mesh.
func (b Bridge) validateNames(v *validator, path string, earlier []NameRule) {
	for i, r := range b.Names {
		at := fmt.Sprintf("%s.names[%d]", path, i)
		if j := slices.IndexFunc(b.Names[:i], func(o NameRule) bool { return o.shadows(r) }); j >= 0 {
			v.errorf(at, "has no effect: names[%d] matches every host and port that this rule matches; "+
				"write several interfaces of one host and port as keys of one rule, and narrower rules first", j)
			continue
		}
		j := slices.IndexFunc(earlier, func(o NameRule) bool { return o.covers(r) })
		if j >= 0 && len(r.ServiceKeys()) > 0 && !slices.Equal(earlier[j].ServiceKeys(), r.ServiceKeys()) {
			v.errorf(at, "has no effect: a rule of an earlier bridge from %s matches the same hosts "+
				"and names other interfaces; the rules of all bridges from one mesh apply together", b.From)
		}
	}
}

func (g Guard) validate(v *validator, path string) {
	if !(g.Share >= 0 && g.Share <= 1) { // nor NaN
		v.errorf(path+".share", "must be between 0 and 1, such as 0.3 (got %v)", g.Share)
	}
}
