package config

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
)

// Format is one form in which services are stored. In the file it is the
// name of the format, or an object. An empty field is the format's own:
// see format.Descriptor.
type Format struct {
	Format   string         `yaml:"format" short:"true" need:"such as dubbo-interface" enum:"formats" doc:"The name of the format."`
	Root     string         `yaml:"root" doc:"The ZooKeeper path, which Dubbo's consumers call the group of their registry; empty is /dubbo for dubbo-interface, /services for dubbo-application and spring-cloud, /microservices for kratos, / for hertz and kitex, /plain for plain."`
	Metadata string         `yaml:"metadataRoot" default:"/dubbo" check:"path" doc:"For dubbo-application: the ZooKeeper path that holds what applications provide and the mapping of interfaces to them."`
	Group    string         `yaml:"group" default:"DEFAULT_GROUP" check:"group" doc:"The Nacos group."`
	Service  string         `yaml:"service" default:"*" doc:"How services are named in formats with plain names: the * is replaced by the name that a rule or the application gives. Dubbo's accept none."`
	Join     bool           `yaml:"join" doc:"Put the endpoints of several services of a mesh together that have one plain name; otherwise the second is refused whole. Where a bridge from a registry writes too, they are put together."`
	Protocol string         `yaml:"protocol" check:"protocol" doc:"The protocol where nothing else says it; empty is tri for Dubbo, http for spring-cloud and hertz, grpc for kratos and gozero, thrift for kitex, tcp for plain."`
	Rules    []ProtocolRule `yaml:"rules" doc:"The RPC protocol per host or port; the first rule that fits counts."`
	Tags     bool           `yaml:"tags" doc:"Write dubbo.tag, which hides a provider from consumers without that tag."`

	LegacyNames bool `yaml:"legacyNames" doc:"For dubbo-interface in Nacos: write a service with an empty version or group also under its name without the empty parts, where consumers of Dubbo up to 2.6 and 2.7.1 and of dubbo-go up to 1.5.6 look. Later consumers read one of the names, or both as one."`
}

// ProtocolRule says which RPC protocol a host or a port speaks.
type ProtocolRule struct {
	Host     string `yaml:"host" default:"*" check:"pattern" doc:"A pattern of mesh hosts; * matches any text."`
	Port     uint16 `yaml:"port" doc:"A service port; 0 matches any."`
	Protocol string `yaml:"protocol" need:"such as tri or dubbo" check:"protocol" doc:"The RPC protocol, such as tri or dubbo."`
}

// complete sets what depends on the format.
func complete(c *Config) {
	for i := range c.Bridges {
		for _, list := range [][]Format{c.Bridges[i].Formats, c.Bridges[i].Reads} {
			for j := range list {
				list[j] = list[j].completed()
			}
		}
	}
}

func (f Format) completed() Format {
	d := f.descriptor()
	f.Root, f.Protocol = cmp.Or(f.Root, d.Root), cmp.Or(f.Protocol, d.Protocol)
	return f
}

// descriptor returns the format that is meant; of one that is not known nothing
// but its zero value.
func (f Format) descriptor() format.Descriptor {
	d, _ := formats.Find(f.Format)
	return d
}

// Read returns the formats in which the registry that the bridge leads from
// is read, if it is no mesh.
func (b Bridge) Read() []Format {
	if len(b.Reads) > 0 {
		return b.Reads
	}
	return b.Formats
}

// validateFormats checks the formats of a bridge, each by itself and against those
// before it.
func (b Bridge) validateFormats(v *validator, path string, registries map[string]Registry) {
	from, to := registries[b.From], registries[b.To]
	if len(b.Reads) > 0 && (from.Settings().Mesh != nil || to.Settings().Mesh != nil) {
		v.errorf(path+".reads", "is for bridges between registries; leave it out: of a mesh no formats are read, and into one formats says which")
	}
	validateFormatList(v, path+".formats", b.Formats, to)
	validateFormatList(v, path+".reads", b.Reads, from)
	if len(b.Reads) == 0 && to.Settings().Kind != from.Settings().Kind { // else it is reported above
		validateForms(v, path+".formats", b.Formats, from)
	}
}

// validateFormatList checks a list of formats and that a registry can hold them.
func validateFormatList(v *validator, path string, list []Format, in Registry) {
	validateForms(v, path, list, in)
	for i, f := range list {
		at := path + "[" + strconv.Itoa(i) + "]"
		for j, o := range list[:i] {
			if o.Format == f.Format && o.Root == f.Root && o.Group == f.Group && o.Service == f.Service {
				v.errorf(at, "writes where formats[%d] of this bridge does; give it another root or group", j)
			}
		}
	}
}

// validateForms checks that formats have a form in a registry.
func validateForms(v *validator, path string, list []Format, in Registry) {
	for i, f := range list {
		s := in.Settings()
		if d := f.descriptor(); d.Name != "" && d.Forms[s.Kind] == nil && s.Layout != Nowhere {
			v.errorf(path+"["+strconv.Itoa(i)+"]", "%s has no form in %s: no client of it looks there", f.Format, s.Title)
		}
	}
}

func (f Format) validate(v *validator, at string) {
	if d := f.descriptor(); d.Root != "" && !pathForm.MatchString(f.Root) && f.Root != d.Root {
		v.errorf(at+".root", "%q is no ZooKeeper path; write it as in /dubbo", f.Root)
	}
	if top, _, _ := strings.Cut(strings.TrimPrefix(f.Root, "/"), "/"); top == "xds-bridge" || top == "zookeeper" {
		v.errorf(at+".root", "%q lies in /%s, which holds no services; write it as in /dubbo", f.Root, top)
	}
	switch at := at + ".service"; {
	case strings.Count(f.Service, "*") != 1 || !plainForm.MatchString(f.Service):
		v.errorf(at, "%q is no pattern of plain names: letters, digits and - _ . with one * for the name", f.Service)
	case f.keyed() && f.Service != "*":
		v.errorf(at, "%s accepts no pattern: service keys and applications name its services; leave it out, and give the format another root or group", f.Format)
	}
	if f.LegacyNames && f.descriptor().Lookup != format.ByKey {
		v.errorf(at+".legacyNames", "has no effect on %s; it is for dubbo-interface", f.Format)
	}
}

// keyed reports whether the names of services follow from keys and
// applications, and from no pattern.
func (f Format) keyed() bool { return f.descriptor().Lookup != format.ByName }

// checkMeetings refuses formats that would meet under one path of ZooKeeper or in
// one service of Nacos. Written there, a single entry of another format costs
// consumers all providers, or one format's writes replace the other's; read
// there, the entries of two do not say which of them they are of.
func checkMeetings(v *validator) {
	all := v.Uses()
	for i, u := range all {
		for _, o := range all[:i] {
			if o.Registry == u.Registry && o.Read == u.Read {
				u.check(v, o)
			}
		}
	}
}

// A Use is a format of a bridge in the registry at one of its ends.
type Use struct {
	Format
	Bridge   Bridge
	Registry string // where it is read or written
	Read     bool   // or written

	path string // in the file
}

// Uses returns those of all bridges, in the order of the file.
func (c *Config) Uses() []Use {
	var all []Use
	for i, b := range c.Bridges {
		add := func(registry string, read bool, key string, list []Format) {
			for j, f := range list {
				all = append(all, Use{f, b, registry, read, "bridges[" + strconv.Itoa(i) + "]." + key + "[" + strconv.Itoa(j) + "]"})
			}
		}
		add(b.To, false, "formats", b.Formats)
		if len(b.Reads) > 0 {
			add(b.From, true, "reads", b.Reads)
		} else {
			add(b.From, true, "formats", b.Formats)
		}
	}
	return all
}

// check compares a use with one before it in the same registry. A place is read once and
// has one layout, whatever bridges share it.
func (u Use) check(v *validator, o Use) {
	layout, same := v.Registries[u.Registry].Settings().Layout, u.Format.Format == o.Format.Format
	switch {
	case same && (layout == UnderRoots && o.Root == u.Root || layout == InGroups && o.Group == u.Group):
		u.agree(v, o, layout)
	case same:
	case layout == UnderRoots && meetUnderRoots(u.Format, o.Format):
		u.refuse(v, o, "the paths under "+o.Root, "root")
	case layout == InGroups && meetInGroups(u.Format, o.Format):
		u.refuse(v, o, "the services of group "+o.Group, "group")
	}
}

// agree refuses, of one format in one place, two patterns that one service fits, two
// protocols for what does not say its own, and two paths for the documents.
func (u Use) agree(v *validator, o Use, layout Layout) {
	d := u.descriptor()
	if u.Service != o.Service {
		if u.Read && patternsMeet(u.Service, o.Service) {
			v.errorf(u.path+".service", "is %q, and %q in %s; a service that fits both would have two names: say the same in both, or give them patterns that no service fits both of",
				u.Service, o.Service, o.path)
		}
		return
	}
	if u.Read && d.Untyped && o.Protocol != u.Protocol {
		v.errorf(u.path+".protocol", "is %q, and %q in %s; both read one place, which is read once: say the same in both, or give each a service pattern of its own",
			u.Protocol, o.Protocol, o.path)
	}
	if d.Lookup == format.ByMapping && layout == UnderRoots && o.Metadata != u.Metadata {
		v.errorf(u.path+".metadataRoot", "is %q, and %q in %s, of the same applications; say the same in both, or give one of them another root",
			u.Metadata, o.Metadata, o.path)
	}
}

// refuse refuses a use that meets one of another format.
func (u Use) refuse(v *validator, o Use, where, key string) {
	switch {
	case !u.Read:
		remedy := "give one of them another " + key
		if !u.keyed() && !o.keyed() {
			remedy += ", or each a service pattern of its own"
		}
		v.errorf(u.path, "%s would meet %s of %s in %s, where one entry of another format costs consumers the whole service; %s",
			u.Format.Format, o.Format.Format, o.path, where, remedy)
	case u.descriptor().Untyped && o.descriptor().Untyped:
		v.errorf(u.path, "%s cannot be distinguished from %s of %s in %s: their entries do not say which they are of; read them as one of the two, or give each a service pattern of its own",
			u.Format.Format, o.Format.Format, o.path, where)
	}
}

func meetUnderRoots(a, b Format) bool {
	if a.descriptor().Root == "" || b.descriptor().Root == "" {
		return false
	}
	if strings.HasPrefix(a.Root, b.Root+"/") || strings.HasPrefix(b.Root, a.Root+"/") {
		return true
	}
	interfaces := a.descriptor().Lookup == format.ByKey || b.descriptor().Lookup == format.ByKey
	return a.Root == b.Root && (interfaces || patternsMeet(a.Service, b.Service))
}

func meetInGroups(a, b Format) bool {
	return a.Group == b.Group && !a.descriptor().OwnNames && !b.descriptor().OwnNames && patternsMeet(a.Service, b.Service)
}

func patternsMeet(a, b string) bool {
	before, after, _ := strings.Cut(a, "*")
	otherBefore, otherAfter, _ := strings.Cut(b, "*")
	return (strings.HasPrefix(before, otherBefore) || strings.HasPrefix(otherBefore, before)) &&
		(strings.HasSuffix(after, otherAfter) || strings.HasSuffix(otherAfter, after))
}
