package config

import (
	"reflect"
	"slices"
	"strings"
)

// Registry is one registry; exactly one of its sections is set. A new kind has its
// section here, and a line in sections.
type Registry struct {
	Istiod     *Istiod     `yaml:"istiod" doc:"A mesh, accessed through istiod."`
	Kubernetes *Kubernetes `yaml:"kubernetes" doc:"A mesh, accessed through the API of its Kubernetes cluster."`
	ZooKeeper  *ZooKeeper  `yaml:"zookeeper" doc:"A ZooKeeper ensemble."`
	Nacos      *Nacos      `yaml:"nacos" doc:"A Nacos cluster."`
	Timing     Timing      `yaml:"timing" doc:"How this registry is written to."`
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

	// Parts returns copies without what a part of the program does not depend on.
	Parts() Parts
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
	Namespace string            // in which all groups are, where formats lie in groups
	Fixed     map[string]string // what says where entries lie and how they are recognised, by its key in the section
}

// Parts are copies of a registry, each with what one part of the program
// depends on and no more. What can be changed while that runs is in none.
type Parts struct {
	Identity   Registry // what entries report of it, or what that depends on
	Source     Registry
	Connection Registry // of a target
	Loop       Registry // the target over its connection, and its loop
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
	MaxServices  int  `yaml:"maxServices" default:"100000" check:"room" doc:"Services that are kept; at any of these bounds nothing more is read, nothing is deleted, and status says so."`
	MaxEndpoints int  `yaml:"maxEndpoints" default:"1000000" check:"room" doc:"Endpoints that are kept."`
	MaxBytes     Size `yaml:"maxBytes" default:"128MiB" check:"room" doc:"What all names, addresses and attributes together may use."`
}

// ofConnection returns the bounds of the connection: the others are the table's.
func (l Limits) ofConnection() Limits { return Limits{MaxReceive: l.MaxReceive} }

func (r Registry) validate(v *validator, path string) {
	if n := len(r.sections()); n != 1 {
		keys := kinds()
		last := len(keys) - 1
		v.errorf(path, "holds %d of %s and %s; it requires exactly one", n, strings.Join(keys[:last], ", "), keys[last])
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
