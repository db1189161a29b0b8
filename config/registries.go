package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Registry is one registry; exactly one of its sections is set. A new kind adds its
// section here and to sections.
type Registry struct {
	Istiod     *Istiod     `yaml:"istiod" parts:"source loop" doc:"A mesh, accessed through istiod."`
	Kubernetes *Kubernetes `yaml:"kubernetes" parts:"source connection loop" doc:"A mesh, accessed through the API of its Kubernetes cluster."`
	ZooKeeper  *ZooKeeper  `yaml:"zookeeper" parts:"source connection loop" doc:"A ZooKeeper ensemble."`
	Nacos      *Nacos      `yaml:"nacos" parts:"source connection loop" doc:"A Nacos cluster."`
	Metadata   string      `yaml:"metadataRegistry" parts:"source" doc:"For dubbo-application that is read from here: the registry that Dubbo's providers use as metadata-report, if it is another one. Its namespace, or metadataRoot of the format, says where."`
	Timing     Timing      `yaml:"timing" parts:"none" doc:"How the bridge writes to this registry."`
}

// sections returns the sections that are set.
func (r Registry) sections() []Section {
	all := []Section{r.Istiod, r.Kubernetes, r.ZooKeeper, r.Nacos}
	return slices.DeleteFunc(all, func(s Section) bool { return reflect.ValueOf(s).IsNil() })
}

// kinds returns the keys of all sections.
func kinds() []string {
	var all []string
	for _, f := range fieldsOf(reflect.TypeFor[Registry]()) {
		if f.typ.Implements(reflect.TypeFor[Section]()) {
			all = append(all, f.key)
		}
	}
	return all
}

// Section returns the section of the registry, and nil if none is set.
func (r Registry) Section() Section {
	if all := r.sections(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Settings returns the settings of the section.
func (r Registry) Settings() Settings {
	if s := r.Section(); s != nil {
		return s.Settings()
	}
	return Settings{}
}

// A Section is the configuration of a registry of one kind.
type Section interface {
	// Settings returns the settings that all kinds have.
	Settings() Settings
}

// Settings are the settings that registries of all kinds have.
type Settings struct {
	Kind  string // the key of the section
	Title string // the kind in a sentence
	// ID is in the path of entries. If it is empty, the registry's stored id or
	// its name is used.
	ID      string
	Mesh    *Hosts // how services of other registries appear as hosts; nil for a registry that is not a mesh
	Subsets bool   // whether endpoints state their subset
	Limits  Limits
	Timeout Duration // of one call; 0 if it is not configured
	// Servers are sorted, in one spelling. They are empty for a kind that does not
	// store our entries.
	Servers   []string
	Layout    Layout
	Namespace string // contains all groups, for the layout InGroups
}

// A Part is a part of the program that is built from the configuration of a
// registry.
type Part string

// The parts, as the tag parts names them.
const (
	Identity   Part = "identity" // the registry's identity in entries
	Source     Part = "source"
	Connection Part = "connection" // of a target
	Loop       Part = "loop"       // the target on its connection, with its loop
)

// Part returns a copy with only the settings that a part depends on. Settings
// that can be changed while the part runs are cleared.
func (r Registry) Part(p Part) Registry {
	clearOtherParts(reflect.ValueOf(&r).Elem(), string(p), "identity source connection loop")
	return r
}

// Fixed returns the settings by which the bridge finds and recognises its entries,
// by their path in the registry. The empty path has the kind.
func (r Registry) Fixed() map[string]string {
	all := map[string]string{"": r.Settings().Kind}
	walk("", reflect.ValueOf(r), field{}, func(path string, x reflect.Value, f field) {
		if strings.Contains(f.parts, "fixed") {
			all["."+path] = x.String()
		}
	})
	return all
}

// clearOtherParts clears the settings that a part does not depend on. A setting
// without the tag parts has the inherited ones.
func clearOtherParts(x reflect.Value, part, inherited string) {
	for _, f := range fieldsOf(x.Type()) {
		v, parts := x.FieldByIndex(f.index), cmp.Or(f.parts, inherited)
		switch _, isSection := reflect.TypeAssert[Section](v); {
		case isSection && !v.IsNil():
			section := reflect.New(v.Type().Elem())
			section.Elem().Set(v.Elem())
			v.Set(section)
			clearOtherParts(section.Elem(), part, parts)
		case v.Kind() == reflect.Struct && unmarshalerOf(v) == nil:
			clearOtherParts(v, part, parts)
		case !strings.Contains(parts, part):
			v.SetZero()
		}
	}
}

// A Layout is the way a registry separates formats.
type Layout int

// The layouts.
const (
	Nowhere    Layout = iota // entries have no configured format
	UnderRoots               // each format has a root path
	InGroups                 // each format has a group
)

// Timing tunes the loop that writes to a registry.
type Timing struct {
	Workers     int      `yaml:"workers" default:"16" check:"workers" doc:"The maximum number of concurrent calls to the registry. It is reduced after failed calls, until the registry keeps up."`
	Rate        int      `yaml:"rate" default:"0" check:"count" doc:"The maximum number of calls to the registry per second. 0: no limit."`
	Debounce    Duration `yaml:"debounce" default:"50ms" doc:"How long further changes are collected after a first one, which is written at once."`
	MaxDebounce Duration `yaml:"maxDebounce" default:"1s" doc:"The longest time that a group waits if it never stops changing. An endpoint that flaps costs one write in this time."`
	Refresh     Duration `yaml:"refresh" default:"5m" check:"interval" doc:"How often the entries in the target are read again and repaired."`
	RetryMin    Duration `yaml:"retryMin" default:"100ms" doc:"The wait after the first failed call. It doubles after each further one."`
	RetryMax    Duration `yaml:"retryMax" default:"30s" doc:"The longest wait between failed calls."`
}

// TLS is the trust and our certificate as a TLS client.
type TLS struct {
	CAFile     string `yaml:"caFile" check:"certificates" doc:"CA certificates as PEM. Empty: the CA certificates of the system."`
	ServerName string `yaml:"serverName" doc:"The name that the certificate of the server must contain. Empty: the host of the address."`
	CertFile   string `yaml:"certFile" doc:"The certificate of the bridge as PEM. Requires keyFile."`
	KeyFile    string `yaml:"keyFile" doc:"The key of certFile as PEM."`
}

// Limits bound what a registry may send and what is kept in memory.
type Limits struct {
	MaxReceive   Size `yaml:"maxReceive" default:"64MiB" check:"answer" doc:"The largest answer that is read."`
	MaxServices  int  `yaml:"maxServices" parts:"none" default:"100000" check:"room" doc:"The maximum number of services. If this or another limit is exceeded, nothing more is read, nothing is deleted, and status says so."`
	MaxEndpoints int  `yaml:"maxEndpoints" parts:"none" default:"1000000" check:"room" doc:"The maximum number of endpoints."`
	MaxBytes     Size `yaml:"maxBytes" parts:"none" default:"128MiB" check:"room" doc:"The maximum memory for all names, addresses and attributes."`
}

func (r Registry) validate(v *validator, path string) {
	if n := len(r.sections()); n != 1 {
		keys := kinds()
		last := len(keys) - 1
		v.errorf(path, "must have exactly one of %s and %s (got %d)", strings.Join(keys[:last], ", "), keys[last], n)
	}
	r.validateMetadata(v, path+".metadataRegistry")
}

// validateMetadata checks that the metadata registry can store documents.
func (r Registry) validateMetadata(v *validator, path string) {
	other, ok := v.Registries[r.Metadata]
	switch {
	case r.Metadata == "":
	case !ok:
		v.errorf(path, "unknown registry %q%s", r.Metadata, suggest(r.Metadata, slices.Collect(maps.Keys(v.Registries))))
	case r.Settings().Mesh != nil:
		v.errorf(path, "has no effect on a mesh; leave it out")
	case other.ZooKeeper == nil && other.Nacos == nil:
		v.errorf(path, "must name a ZooKeeper or a Nacos, which store metadata (got %q)", r.Metadata)
	case other.Metadata != "":
		v.errorf(path, "%q itself has a metadataRegistry; name that one", r.Metadata)
	}
}

func (t Timing) validate(v *validator, path string) {
	if t.MaxDebounce < t.Debounce {
		v.errorf(path+".maxDebounce", "must be at least debounce, %s (got %s)", t.Debounce, t.MaxDebounce)
	}
	if t.RetryMin <= 0 || t.RetryMax < t.RetryMin {
		v.errorf(path+".retryMin", "must be greater than 0 and at most retryMax, %s (got %s)", t.RetryMax, t.RetryMin)
	}
}

func (t *TLS) validate(v *validator, path string) {
	v.checkPair(path, [2]string{"certFile", t.CertFile}, [2]string{"keyFile", t.KeyFile})
}

func (t *TLS) files(v *validator, path string) { v.checkKeyPair(path, t.CertFile, t.KeyFile) }
