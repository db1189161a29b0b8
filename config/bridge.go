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
	Name     string     `yaml:"name" need:"it is a part of the mark on every entry" check:"name" doc:"Unique in the file; a part of the mark on every entry."`
	From     string     `yaml:"from" need:"name one of registries" doc:"The registry that is read."`
	To       string     `yaml:"to" need:"name one of registries" doc:"The registry that is written."`
	Listen   string     `yaml:"listen" doc:"Into a mesh only: the address istiod's configSources names."`
	Formats  []Format   `yaml:"formats" need:"such as [dubbo-interface]" doc:"The formats in which services are stored. From a mesh each service is stored in all of them. Between registries they are also what is read, each at its root or in its group, and a service is stored in the one in whose place it was read. Into a mesh they are only what is read."`
	Reads    []Format   `yaml:"reads" doc:"Between registries: what is read in place of formats, each format at its root or in its group; each service is then stored in all of formats."`
	Select   Select     `yaml:"select" doc:"Which services and addresses pass."`
	Names    []NameRule `yaml:"names" doc:"What a mesh host provides where no service key is published; the first rule that fits a host counts, and one that never counts, because an earlier one fits wherever it does, is refused. interface, version and group are what the host is in the mesh: rules of all bridges from that mesh count, in the order of the file. service and protocol count for this bridge only."`
	Metadata Metadata   `yaml:"metadata" doc:"What of the attributes of services passes, and under which keys; followed in this order."`
	Policy   string     `yaml:"policy" default:"sync" enum:"sync|upsert-only|create-only|read-only" doc:"What the bridge may do to its entries."`
	Guard    Guard      `yaml:"guard" doc:"How reluctantly the bridge deletes."`
}

// Select says which services and addresses pass a bridge.
type Select struct {
	Include       []string       `yaml:"include" check:"pattern" filled:"to let none pass remove the bridge, or write exclude: ['*']" doc:"Patterns with at most one star: of mesh hosts; from another registry of interfaces, of service keys such as providers:org.acme.*, or of other native names. Without it all pass."`
	Exclude       []string       `yaml:"exclude" check:"pattern" doc:"Patterns of what is left out all the same."`
	SkipMutualTLS bool           `yaml:"skipMutualTLS" doc:"Leave out endpoints whose mesh policy may refuse plaintext callers."`
	Allow         []netip.Prefix `yaml:"allow" doc:"Networks whose addresses pass although they are loopback, link-local, multicast or a metadata service."`
}

// NameRule maps a mesh host to the interface it provides, a service to its
// name in formats with plain names, or both.
type NameRule struct {
	Host      string   `yaml:"host" need:"such as *.shop.svc.cluster.local" check:"pattern" doc:"A pattern of mesh hosts, or for service of native names; * matches any text."`
	Port      uint16   `yaml:"port" doc:"A service port; 0 matches every one, such as an HTTP port beside that of the RPC."`
	Interface string   `yaml:"interface" check:"key" doc:"The interface the host provides; a * is replaced by what the star of host matches."`
	Keys      []string `yaml:"keys" check:"serviceKey" doc:"Service keys such as providers:org.acme.Orders:1.0:, in place of interface, version and group: of a port that provides several interfaces."`
	Service   string   `yaml:"service" check:"plain" doc:"The service's name in formats with plain names, a * as in interface; empty is the application's name. For dubbo-application the name of the application."`
	Version   string   `yaml:"version" check:"key" doc:"The version of the interface."`
	Group     string   `yaml:"group" check:"key" doc:"The group of the interface."`
	Protocol  string   `yaml:"protocol" check:"protocol" doc:"The RPC protocol; empty leaves that to the format."`
}

// Metadata says which attributes of services pass a bridge, and under which keys.
type Metadata struct {
	Keep   []string          `yaml:"keep" filled:"to let none pass write drop: ['*']" doc:"Patterns of the keys that pass; without it all do."`
	Drop   []string          `yaml:"drop" doc:"Patterns of the keys that do not pass all the same."`
	Rename map[string]string `yaml:"rename" doc:"A key, and what it is called from here on; where that exists already it stays, and status reports it."`
	Values []ValueRule       `yaml:"values" doc:"Values that others replace; the first rule that fits counts."`
	Add    map[string]string `yaml:"add" doc:"Keys and values that every service gets, in place of what it says itself."`
}

// ValueRule replaces one value of a key by another.
type ValueRule struct {
	Key  string `yaml:"key" need:"the key whose value is replaced" doc:"The key, by its new name."`
	From string `yaml:"from" doc:"The value that is replaced."`
	To   string `yaml:"to" doc:"The value in its place; empty leaves the key out."`
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
	Mode         string   `yaml:"mode" default:"enforce" enum:"enforce|warn|off" doc:"Whether deletions are held, only reported, or go."`
	Share        float64  `yaml:"share" default:"0.3" doc:"Deletions are held that would leave more than this part of a bridge's services without an endpoint, or delete more than this part of its endpoints, within window. 0 and 1: none are."`
	AtLeast      int      `yaml:"atLeast" default:"10" check:"count" doc:"Endpoints that do not count against share within window if the source withdraws them and others of their service stay."`
	Window       Duration `yaml:"window" default:"1h" doc:"How long a loss counts, and how long a host in a mesh stays without endpoints whose service is only found to be gone."`
	LastEndpoint Duration `yaml:"lastEndpoint" default:"30s" doc:"How long the last endpoint of a service waits."`
	Settle       Duration `yaml:"settle" default:"1m" doc:"How long an orphan waits once the source is complete: an entry that no reading shows and nobody withdrew."`
	Confirm      Duration `yaml:"confirm" default:"10m" doc:"How long after a hold began a reading over a new connection may confirm it; 0s: only approval ends it."`
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
