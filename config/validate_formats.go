package config

import (
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/format"
)

// nameSigns is what plain names consist of.
const nameSigns = namespaceSigns + "."

// formats checks the formats of a bridge, each by itself and against those
// before it.
func (v *validator) formats(path string, b Bridge, registries map[string]Registry) {
	if len(b.Formats) == 0 {
		v.errorf(path+".formats", "missing; such as [dubbo-interface]")
	}
	from, to := registries[b.From], registries[b.To]
	if len(b.Reads) > 0 && (from.Mesh() || to.Mesh()) {
		v.errorf(path+".reads", "is for bridges between registries; leave it out: of a mesh no formats are read, and into one formats says which")
	}
	v.formatList(path+".formats", b.Formats, to)
	v.formatList(path+".reads", b.Reads, from)
	if len(b.Reads) == 0 && to.Settings().Kind != from.Settings().Kind { // else it is reported above
		v.formatsIn(path+".formats", b.Formats, from)
	}
}

// formatList checks a list of formats and that a registry can hold them.
func (v *validator) formatList(path string, formats []Format, in Registry) {
	v.formatsIn(path, formats, in)
	for i, f := range formats {
		at := path + "[" + strconv.Itoa(i) + "]"
		v.format(at, f)
		for j, o := range formats[:i] {
			if o.Format == f.Format && o.Root == f.Root && o.Group == f.Group && o.Service == f.Service {
				v.errorf(at, "writes where formats[%d] of this bridge does; give it another root or group", j)
			}
		}
	}
}

func (v *validator) formatsIn(path string, formats []Format, in Registry) {
	for i, f := range formats {
		s := in.Settings()
		if d := f.descriptor(); d.Name != "" && d.Forms[s.Kind] == nil && s.Layout != Nowhere {
			v.errorf(path+"["+strconv.Itoa(i)+"]", "%s has no form in %s: no client of it looks there", f.Format, s.Title)
		}
	}
}

func (v *validator) format(at string, f Format) {
	if f.Format == "" {
		v.errorf(at+".format", "missing; such as dubbo-interface")
	}
	d := f.descriptor()
	if d.Root != "" && !isPath(f.Root) && f.Root != d.Root {
		v.errorf(at+".root", "%q is no ZooKeeper path; write it as in /dubbo", f.Root)
	}
	if !isPath(f.Metadata) {
		v.errorf(at+".metadataRoot", "%q is no ZooKeeper path; write it as in /dubbo", f.Metadata)
	}
	if strings.Trim(f.Group, namespaceSigns+".:") != "" || len(f.Group) > 128 {
		v.errorf(at+".group", "%q is no group of Nacos: letters, digits and - _ . :, at most 128", f.Group)
	}
	v.servicePattern(at+".service", f)
	if d.Name != "" {
		v.protocol(at+".protocol", f.Protocol)
	}
	v.protocolRules(at+".rules", f.Rules)
}

func (v *validator) servicePattern(at string, f Format) {
	switch {
	case strings.Count(f.Service, "*") != 1 || strings.Trim(f.Service, nameSigns+"*") != "":
		v.errorf(at, "%q is no pattern of plain names: letters, digits and - _ . with one * for the name", f.Service)
	case f.keyed() && f.Service != "*":
		v.errorf(at, "%s takes no pattern: service keys and applications name its services; leave it out, and give the format another root or group", f.Format)
	}
}

// keyed reports whether the names of services follow from keys and
// applications, and from no pattern.
func (f Format) keyed() bool { return f.descriptor().Lookup != format.ByName }

func isPath(path string) bool {
	return len(path) > 1 && path[0] == '/' && !strings.HasSuffix(path, "/") && !strings.Contains(path, "//")
}

// meetings refuses formats that would meet under one path of ZooKeeper or in
// one service of Nacos. Written there, a single entry of another format costs
// consumers all providers, or one format's writes replace the other's; read
// there, the entries of two do not say which of them they are of.
func (v *validator) meetings(bridges []Bridge, registries map[string]Registry) {
	var written, read []use
	for i, b := range bridges {
		path := "bridges[" + strconv.Itoa(i) + "]."
		for j, f := range b.Formats {
			u := use{path + "formats[" + strconv.Itoa(j) + "]", b.To, f}
			v.oneMetadataRoot(written, u, registries[b.To])
			written = v.meeting(written, u, registries, v.collide)
		}
		key := "formats["
		if len(b.Reads) > 0 {
			key = "reads["
		}
		for j, f := range b.Read() {
			u := use{path + key + strconv.Itoa(j) + "]", b.From, f}
			v.oneMetadataRoot(read, u, registries[b.From])
			v.oneProtocol(read, u, registries[b.From])
			read = v.meeting(read, u, registries, v.confuse)
		}
	}
}

// use is a format of a bridge in the registry at one of its ends.
type use struct {
	path, registry string
	Format
}

// first returns the first use before that is of the same place: the same
// format under the same path or group, under the same pattern. A place is read
// once and has one layout, whatever bridges share it.
func (u use) first(before []use, in Registry) (use, bool) {
	for _, o := range before {
		if o.registry == u.registry && o.Format.Format == u.Format.Format && o.Service == u.Service &&
			(in.Settings().Layout == UnderRoots && o.Root == u.Root || in.Settings().Layout == InGroups && o.Group == u.Group) {
			return o, true
		}
	}
	return use{}, false
}

// oneProtocol refuses two protocols for what does not say its own.
func (v *validator) oneProtocol(before []use, u use, in Registry) {
	if o, ok := u.first(before, in); ok && o.Protocol != u.Protocol && u.descriptor().Untyped {
		v.errorf(u.path+".protocol", "is %q, and %q in %s; both read one place, which is read once: say the same in both, or give each a service pattern of its own",
			u.Protocol, o.Protocol, o.path)
	}
}

// oneMetadataRoot refuses two paths for the documents of one place.
func (v *validator) oneMetadataRoot(before []use, u use, in Registry) {
	if o, ok := u.first(before, in); ok && o.Metadata != u.Metadata && u.descriptor().Lookup == format.ByMapping && in.Settings().Layout == UnderRoots {
		v.errorf(u.path+".metadataRoot", "is %q, and %q in %s, of the same applications; say the same in both, or give one of them another root",
			u.Metadata, o.Metadata, o.path)
	}
}

// meeting reports every format before that one meets.
func (*validator) meeting(before []use, u use, registries map[string]Registry, report func(u, o use, where string)) []use {
	layout := registries[u.registry].Settings().Layout
	for _, o := range before {
		switch {
		case o.registry != u.registry || o.Format.Format == u.Format.Format:
		case layout == UnderRoots && meetUnderRoots(u.Format, o.Format):
			report(u, o, "the paths under "+o.Root)
		case layout == InGroups && meetInGroups(u.Format, o.Format):
			report(u, o, "the services of group "+o.Group)
		}
	}
	return append(before, u)
}

func (v *validator) collide(u, o use, where string) {
	remedy := "give one of them another root"
	if strings.HasPrefix(where, "the services") {
		remedy = "give one of them another group"
	}
	if !u.keyed() && !o.keyed() {
		remedy += ", or each a service pattern of its own"
	}
	v.errorf(u.path, "%s would meet %s of %s in %s, where one entry of another format costs consumers the whole service; %s",
		u.Format.Format, o.Format.Format, o.path, where, remedy)
}

func (v *validator) confuse(u, o use, where string) {
	if u.descriptor().Untyped && o.descriptor().Untyped {
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

// patternsMeet reports whether a name may fit two patterns.
func patternsMeet(a, b string) bool {
	before, after, _ := strings.Cut(a, "*")
	otherBefore, otherAfter, _ := strings.Cut(b, "*")
	return (strings.HasPrefix(before, otherBefore) || strings.HasPrefix(otherBefore, before)) &&
		(strings.HasSuffix(after, otherAfter) || strings.HasSuffix(otherAfter, after))
}
