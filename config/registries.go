package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Registry is one registry; exactly one of its sections is set. A new kind has its
// section here, and a line in sections.
type Registry struct {
	Istiod     *Istiod     `yaml:"istiod" parts:"source loop" doc:"A mesh, accessed through istiod."`
	Kubernetes *Kubernetes `yaml:"kubernetes" parts:"source connection loop" doc:"A mesh, accessed through the API of its Kubernetes cluster."`
	ZooKeeper  *ZooKeeper  `yaml:"zookeeper" parts:"source connection loop" doc:"A ZooKeeper ensemble."`
	Nacos      *Nacos      `yaml:"nacos" parts:"source connection loop" doc:"A Nacos cluster."`
	Metadata   string      `yaml:"metadataRegistry" parts:"source" doc:"For dubbo-application that is read here: the registry, another one of this file, in which providers store what they provide, if that is not this one: the metadata-report of Dubbo. Its namespace, or the metadataRoot of the format, says where."`
	Timing     Timing      `yaml:"timing" parts:"none" doc:"How this registry is written to."`
}

// sections returns the sections of the file that are there.
func (r Registry) sections() []Section {
	all := []Section{r.Istiod, r.Kubernetes, r.ZooKeeper, r.Nacos}
	return slices.DeleteFunc(all, func(s Section) bool { return reflect.ValueOf(s).IsNil() })
}

// kinds names the keys of all sections.
func kinds() []string {
	var all []string
	for _, f := range fieldsOf(reflect.TypeFor[Registry]()) {
		if f.typ.Implements(reflect.TypeFor[Section]()) {
			all = append(all, f.key)
		}
	}
	return all
}

// Section returns what is said of the registry; nil of one whose configuration is
// not valid.
func (r Registry) Section() Section {
	if all := r.sections(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Settings returns those of the section.
func (r Registry) Settings() Settings {
	if s := r.Section(); s != nil {
		return s.Settings()
	}
	return Settings{}
}

// A Section is what the file says of a registry of one kind.
type Section interface {
	// Settings returns what registries of all kinds have.
	Settings() Settings
}

// Settings are what registries of all kinds have.
type Settings struct {
	Kind      string // the key of the section
	Title     string // as a sentence names the kind
	ID        string // in the path of entries; empty: the one that the registry keeps, or its name
	Mesh      *Hosts // how services of others appear as its hosts; nil: it is no mesh
	Subsets   bool   // it says which subset endpoints are of
	Limits    Limits
	Timeout   Duration // of one call; 0: it is not configured
	Servers   []string // sorted and as one spells them; of what nothing of ours lies in none
	Layout    Layout
	Namespace string // in which all groups are, where formats lie in groups
}

// A Part is a part of the program that is made from a registry.
type Part string

// The parts, as the tag parts names them.
const (
	Identity   Part = "identity" // what entries report of it, or what that depends on
	Source     Part = "source"
	Connection Part = "connection" // of a target
	Loop       Part = "loop"       // the target over its connection, and its loop
)

// Part returns a copy with what a part depends on and no more. What can be changed while
// it runs is not in it.
func (r Registry) Part(p Part) Registry {
	keep(reflect.ValueOf(&r).Elem(), string(p), "identity source connection loop")
	return r
}

// Fixed returns the settings by which entries are found and recognised, by path in the
// registry, and its kind under the empty path.
func (r Registry) Fixed() map[string]string {
	all := map[string]string{"": r.Settings().Kind}
	walk("", reflect.ValueOf(r), field{}, func(path string, x reflect.Value, f field) {
		if strings.Contains(f.parts, "fixed") {
			all["."+path] = x.String()
		}
	})
	return all
}

// keep clears the settings that a part does not depend on.
func keep(x reflect.Value, part, inherited string) {
	for _, f := range fieldsOf(x.Type()) {
		v, parts := x.FieldByIndex(f.index), cmp.Or(f.parts, inherited)
		switch _, isSection := reflect.TypeAssert[Section](v); {
		case isSection && !v.IsNil():
			section := reflect.New(v.Type().Elem())
			section.Elem().Set(v.Elem())
			v.Set(section)
			keep(section.Elem(), part, parts)
		case v.Kind() == reflect.Struct && text(v) == nil:
			keep(v, part, parts)
		case !strings.Contains(parts, part):
			v.SetZero()
		}
	}
}

// A Layout is where formats lie in a registry.
type Layout int

// Where formats lie.
const (
	Nowhere    Layout = iota // entries are not of a format that is configured
	UnderRoots               // each under its root
	InGroups                 // each in its group
)

// Timing tunes the loop that writes to a registry.
type Timing struct {
	Workers     int      `yaml:"workers" default:"16" check:"workers" doc:"Calls to the registry at a time, at most; fewer after calls that failed, until it keeps up."`
	Rate        int      `yaml:"rate" default:"0" check:"count" doc:"Calls to the registry in a second, at most; 0 leaves that to workers."`
	Debounce    Duration `yaml:"debounce" default:"50ms" doc:"How long the followers of a first change are gathered; the first is written at once."`
	MaxDebounce Duration `yaml:"maxDebounce" default:"1s" doc:"How long a group that never stops changing waits at most, and how often it is then written: an endpoint that flaps costs one write in this time."`
	Refresh     Duration `yaml:"refresh" default:"5m" check:"interval" doc:"How long what was read is trusted before it is read and repaired again."`
	RetryMin    Duration `yaml:"retryMin" default:"100ms" doc:"The wait after a first failed call; doubled each time."`
	RetryMax    Duration `yaml:"retryMax" default:"30s" doc:"The longest wait between failed calls."`
}

// TLS says whom to trust and who we are.
type TLS struct {
	CAFile     string `yaml:"caFile" check:"certificates" doc:"Certificates to trust as PEM; the system's if it is empty."`
	ServerName string `yaml:"serverName" doc:"The name the server's certificate has to hold; the address's host if it is empty."`
	CertFile   string `yaml:"certFile" doc:"Our certificate as PEM, with keyFile."`
	KeyFile    string `yaml:"keyFile" doc:"Our key as PEM, with certFile."`
}

// Limits bound what a registry may send, and what is kept of it.
type Limits struct {
	MaxReceive   Size `yaml:"maxReceive" default:"64MiB" check:"answer" doc:"The largest answer that is read."`
	MaxServices  int  `yaml:"maxServices" parts:"none" default:"100000" check:"room" doc:"Services that are kept; at any of these bounds nothing more is read, nothing is deleted, and status says so."`
	MaxEndpoints int  `yaml:"maxEndpoints" parts:"none" default:"1000000" check:"room" doc:"Endpoints that are kept."`
	MaxBytes     Size `yaml:"maxBytes" parts:"none" default:"128MiB" check:"room" doc:"What all names, addresses and attributes together may use."`
}

func (r Registry) validate(v *validator, path string) {
	if n := len(r.sections()); n != 1 {
		keys := kinds()
		last := len(keys) - 1
		v.errorf(path, "holds %d of %s and %s; it requires exactly one", n, strings.Join(keys[:last], ", "), keys[last])
	}
	r.validateMetadata(v, path+".metadataRegistry")
}

// validateMetadata checks that documents are in a registry that stores some.
func (r Registry) validateMetadata(v *validator, path string) {
	other, ok := v.Registries[r.Metadata]
	switch {
	case r.Metadata == "":
	case !ok:
		v.errorf(path, "unknown registry %q%s", r.Metadata, suggest(r.Metadata, slices.Collect(maps.Keys(v.Registries))))
	case r.Settings().Mesh != nil:
		v.errorf(path, "has no effect on a mesh; leave it out")
	case other.ZooKeeper == nil && other.Nacos == nil:
		v.errorf(path, "%q is neither a ZooKeeper nor a Nacos, which store metadata", r.Metadata)
	case other.Metadata != "":
		v.errorf(path, "%q has a metadataRegistry itself; name that one", r.Metadata)
	}
}

func (t Timing) validate(v *validator, path string) {
	if t.MaxDebounce < t.Debounce {
		v.errorf(path+".maxDebounce", "%s is shorter than debounce, %s", t.MaxDebounce, t.Debounce)
	}
	if t.RetryMin <= 0 || t.RetryMax < t.RetryMin {
		v.errorf(path+".retryMin", "%s to %s is no wait; retryMin is more than nothing and at most retryMax", t.RetryMin, t.RetryMax)
	}
}

func (t *TLS) validate(v *validator, path string) {
	v.pair(path, [2]string{"certFile", t.CertFile}, [2]string{"keyFile", t.KeyFile})
}

func (t *TLS) files(v *validator, path string) { v.keyPair(path, t.CertFile, t.KeyFile) }
