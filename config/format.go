package config

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
)

// Format is one format in which services are stored. In the file it is written
// as the name of the format, or as an object. An empty field means the
// format's default, see format.Descriptor.
type Format struct {
	Format   string         `yaml:"format" short:"true" need:"such as dubbo-interface" enum:"formats" doc:"The name of the format."`
	Root     string         `yaml:"root" doc:"The ZooKeeper path, which Dubbo's consumers call the group of their registry. Empty: /dubbo for dubbo-interface, /services for dubbo-application and spring-cloud, /microservices for kratos, / for hertz and kitex, /plain for plain."`
	Metadata string         `yaml:"metadataRoot" default:"/dubbo" check:"path" doc:"For dubbo-application: the ZooKeeper path of the metadata of applications and of the mapping from interfaces to applications."`
	Group    string         `yaml:"group" default:"DEFAULT_GROUP" check:"group" doc:"The Nacos group."`
	Service  string         `yaml:"service" default:"*" doc:"A pattern for service names in formats with plain names. The * is replaced by the name from a rule or from the application. Dubbo's formats do not accept a pattern."`
	Join     bool           `yaml:"join" doc:"Merge services of a mesh that map to the same plain name; otherwise only the first is written. They are always merged where a bridge from a registry writes, too."`
	Protocol string         `yaml:"protocol" check:"protocol" doc:"The RPC protocol if neither a rule nor the source says it. Empty: tri for Dubbo, http for spring-cloud and hertz, grpc for kratos and gozero, thrift for kitex, tcp for plain."`
	Rules    []ProtocolRule `yaml:"rules" doc:"The RPC protocol per host or port. The first rule that matches applies."`
	Tags     bool           `yaml:"tags" doc:"Write dubbo.tag, which hides a provider from consumers that do not use this tag."`

	LegacyNames bool `yaml:"legacyNames" doc:"For dubbo-interface in Nacos: also write a service with an empty version or group under its name without the empty parts. Consumers of Dubbo up to 2.6 and 2.7.1, and of dubbo-go up to 1.5.6, look there. Later consumers read one of the names, or merge both."`
}

// ProtocolRule sets the RPC protocol of a host or a port.
type ProtocolRule struct {
	Host     string `yaml:"host" default:"*" check:"pattern" doc:"A pattern of hosts of the mesh. * matches any text."`
	Port     uint16 `yaml:"port" doc:"A service port. 0 matches every port."`
	Protocol string `yaml:"protocol" need:"such as tri or dubbo" check:"protocol" doc:"The RPC protocol, such as tri or dubbo."`
}

// completeFormats sets the defaults that depend on the format.
func completeFormats(c *Config) {
	for i := range c.Bridges {
		for _, list := range [][]Format{c.Bridges[i].Formats, c.Bridges[i].Reads} {
			for j := range list {
				list[j] = list[j].withDefaults()
			}
		}
	}
}

func (f Format) withDefaults() Format {
	d := f.descriptor()
	f.Root, f.Protocol = cmp.Or(f.Root, d.Root), cmp.Or(f.Protocol, d.Protocol)
	return f
}

// descriptor returns the descriptor of the format, or the zero value for an
// unknown one.
func (f Format) descriptor() format.Descriptor {
	d, _ := formats.Find(f.Format)
	return d
}

// Read returns the formats in which the bridge reads its source, unless the
// source is a mesh.
func (b Bridge) Read() []Format {
	if len(b.Reads) > 0 {
		return b.Reads
	}
	return b.Formats
}

// validateFormats checks the formats of a bridge, and each against those before
// it in the list.
func (b Bridge) validateFormats(v *validator, path string, registries map[string]Registry) {
	from, to := registries[b.From], registries[b.To]
	if len(b.Reads) > 0 && (from.Settings().Mesh != nil || to.Settings().Mesh != nil) {
		v.errorf(path+".reads", "is only for bridges between registries; leave it out: "+
			"a mesh has no formats, and into a mesh formats lists what is read")
	}
	validateFormatList(v, path+".formats", b.Formats, to)
	validateFormatList(v, path+".reads", b.Reads, from)
	if len(b.Reads) == 0 && to.Settings().Kind != from.Settings().Kind { // otherwise reported above
		validateForms(v, path+".formats", b.Formats, from)
	}
}

// validateFormatList refuses formats that a registry cannot hold, and two that
// would use the same place in it.
func validateFormatList(v *validator, path string, list []Format, in Registry) {
	validateForms(v, path, list, in)
	for i, f := range list {
		at := path + "[" + strconv.Itoa(i) + "]"
		for j, o := range list[:i] {
			if o.Format == f.Format && o.Root == f.Root && o.Group == f.Group && o.Service == f.Service {
				v.errorf(at, "uses the same place as formats[%d] of this bridge; give it another root or group", j)
			}
		}
	}
}

// validateForms refuses formats that have no form in a registry.
func validateForms(v *validator, path string, list []Format, in Registry) {
	for i, f := range list {
		s := in.Settings()
		if d := f.descriptor(); d.Name != "" && d.Forms[s.Kind] == nil && s.Layout != Nowhere {
			v.errorf(path+"["+strconv.Itoa(i)+"]", "%s has no form in %s: none of its clients reads it there", f.Format, s.Title)
		}
	}
}

func (f Format) validate(v *validator, at string) {
	if d := f.descriptor(); d.Root != "" && !pathForm.MatchString(f.Root) && f.Root != d.Root {
		v.errorf(at+".root", "must be a ZooKeeper path, such as /dubbo (got %q)", f.Root)
	}
	if top, _, _ := strings.Cut(strings.TrimPrefix(f.Root, "/"), "/"); top == "xds-bridge" || top == "zookeeper" {
		v.errorf(at+".root", "must not lie in /%s, which holds no services; use a path such as /dubbo (got %q)", top, f.Root)
	}
	switch at := at + ".service"; {
	case strings.Count(f.Service, "*") != 1 || !plainForm.MatchString(f.Service):
		v.errorf(at, "must have only letters, digits and - _ . with one * for the name (got %q)", f.Service)
	case !f.plainNames() && f.Service != "*":
		v.errorf(at, "%s accepts no pattern, because service keys and applications name its services; "+
			"leave it out, and give the format another root or group", f.Format)
	}
	if f.LegacyNames && f.descriptor().Lookup != format.ByKey {
		v.errorf(at+".legacyNames", "has no effect on %s; it is only for dubbo-interface", f.Format)
	}
}

// plainNames reports whether the pattern Service names services. The services of
// other formats are named by service keys and applications.
func (f Format) plainNames() bool { return f.descriptor().Lookup == format.ByName }

// checkMeetings refuses formats that would meet under one path of ZooKeeper or in
// one service of Nacos. For a target, one entry of another format makes consumers
// lose all providers, or the writes of one format replace those of the other. For
// a source, the entries do not show which of the two formats they have.
func checkMeetings(v *validator) {
	uses := v.Uses()
	for i, u := range uses {
		for _, earlier := range uses[:i] {
			if earlier.Registry == u.Registry && earlier.Read == u.Read {
				u.checkAgainst(v, earlier)
			}
		}
	}
}

// A Use is a format of a bridge in the source or in the target of the bridge.
type Use struct {
	Format
	Bridge   Bridge
	Registry string // the name of the source or target
	Read     bool   // whether Registry is the source

	path string // in the file
}

// Uses returns the uses of all bridges, in the order of the file.
func (c *Config) Uses() []Use {
	var uses []Use
	for i, b := range c.Bridges {
		add := func(registry string, read bool, key string, list []Format) {
			for j, f := range list {
				path := "bridges[" + strconv.Itoa(i) + "]." + key + "[" + strconv.Itoa(j) + "]"
				uses = append(uses, Use{f, b, registry, read, path})
			}
		}
		add(b.To, false, "formats", b.Formats)
		if len(b.Reads) > 0 {
			add(b.From, true, "reads", b.Reads)
		} else {
			add(b.From, true, "formats", b.Formats)
		}
	}
	return uses
}

// checkAgainst checks a use against an earlier one of the same registry. Each
// place is read once and has one format, even if several bridges share it.
func (u Use) checkAgainst(v *validator, o Use) {
	layout, same := v.Registries[u.Registry].Settings().Layout, u.Format.Format == o.Format.Format
	switch {
	case same && (layout == UnderRoots && o.Root == u.Root || layout == InGroups && o.Group == u.Group):
		u.checkAgreement(v, o, layout)
	case same:
	case layout == UnderRoots && meetUnderRoots(u.Format, o.Format):
		u.refuseMeeting(v, o, "the paths under "+o.Root, "root")
	case layout == InGroups && meetInGroups(u.Format, o.Format):
		u.refuseMeeting(v, o, "the services of group "+o.Group, "group")
	}
}

// checkAgreement checks two uses of one format in one place. It refuses two
// service patterns that one name can match, two protocols for entries that state
// none, and two paths for the metadata documents.
func (u Use) checkAgreement(v *validator, o Use, layout Layout) {
	d := u.descriptor()
	if u.Service != o.Service {
		if u.Read && patternsMeet(u.Service, o.Service) {
			v.errorf(u.path+".service", "is %q, but %q in %s; a service that matches both would have two names: "+
				"write the same pattern in both, or patterns that no service can both match", u.Service, o.Service, o.path)
		}
		return
	}
	if u.Read && d.Untyped && o.Protocol != u.Protocol {
		v.errorf(u.path+".protocol", "is %q, but %q in %s; both read the same place, which is read once: "+
			"write the same protocol in both, or give each its own service pattern", u.Protocol, o.Protocol, o.path)
	}
	if d.Lookup == format.ByMapping && layout == UnderRoots && o.Metadata != u.Metadata {
		v.errorf(u.path+".metadataRoot", "is %q, but %q in %s for the same applications; "+
			"write the same path in both, or give one of them another root", u.Metadata, o.Metadata, o.path)
	}
}

// refuseMeeting refuses a use that meets a use of another format.
func (u Use) refuseMeeting(v *validator, o Use, where, key string) {
	switch {
	case !u.Read:
		remedy := "give one of them another " + key
		if u.plainNames() && o.plainNames() {
			remedy += ", or each its own service pattern"
		}
		v.errorf(u.path, "%s would meet %s of %s in %s, "+
			"where one entry of another format makes consumers lose the whole service; %s",
			u.Format.Format, o.Format.Format, o.path, where, remedy)
	case u.descriptor().Untyped && o.descriptor().Untyped:
		v.errorf(u.path, "%s cannot be distinguished from %s of %s in %s: their entries do not name their format; "+
			"read them as one of the two, or give each its own service pattern",
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
