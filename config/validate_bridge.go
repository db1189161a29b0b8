package config

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

func (v *validator) bridge(path string, b Bridge, registries map[string]Registry) {
	v.name(path+".name", b.Name, "is a part of the mark on every entry")
	known := slices.Collect(maps.Keys(registries))
	for _, end := range [][2]string{{"from", b.From}, {"to", b.To}} {
		key, name := end[0], end[1]
		if _, ok := registries[name]; name == "" {
			v.errorf(path+"."+key, "missing; name one of registries")
		} else if !ok {
			v.errorf(path+"."+key, "unknown registry %q%s", name, suggest(name, known))
		}
	}
	if m := registries[b.From].Istiod; m != nil && m.Address == "" {
		v.errorf(path+".from", "%q has no istiod to read from; write its address", b.From)
	}
	if b.From == b.To && b.From != "" {
		v.errorf(path+".to", "a bridge from %q to itself; name two registries", b.From)
	}
	v.listen(path, b, registries)
	v.formats(path, b, registries)
	v.patterns(path+".select.include", b.Select.Include)
	v.patterns(path+".select.exclude", b.Select.Exclude)
	v.prefixes(path+".select.allow", b.Select.Allow)
	for i, r := range b.Names {
		v.nameRule(path+".names["+strconv.Itoa(i)+"]", r)
	}
	v.guard(path+".guard", b.Guard)
}

func (v *validator) listen(path string, b Bridge, registries map[string]Registry) {
	to, known := registries[b.To]
	switch {
	case !known:
	case to.Istiod == nil && b.Listen != "":
		v.errorf(path+".listen", "is where istiod reads, and %q is not reached through istiod; leave it out", b.To)
	case to.Istiod != nil && b.Listen == "":
		v.errorf(path+".listen", "missing; a bridge into a mesh serves istiod at an address, such as \":15031\"")
	case to.Istiod != nil:
		v.listener(path+".listen", b.Listen)
	}
}

func (v *validator) protocolRules(path string, rules []ProtocolRule) {
	for i, r := range rules {
		at := path + "[" + strconv.Itoa(i) + "]"
		v.pattern(at+".host", r.Host)
		v.protocol(at+".protocol", r.Protocol)
	}
}

func (v *validator) nameRule(path string, r NameRule) {
	v.pattern(path+".host", r.Host)
	if r.Interface == "" && r.Service == "" {
		v.errorf(path+".interface", "missing; the interface that the host provides, or a service for formats with plain names")
	}
	if strings.Count(r.Service, "*") > strings.Count(r.Host, "*") {
		v.errorf(path+".service", "%q has more stars than host, whose star its own stands for", r.Service)
	}
	if r.Service != "" && strings.Trim(r.Service, nameSigns+"*") != "" {
		v.errorf(path+".service", "%q is no plain name: letters, digits and - _ . only", r.Service)
	}
	if strings.Count(r.Interface, "*") > strings.Count(r.Host, "*") {
		v.errorf(path+".interface", "%q has more stars than host, whose star its own stands for", r.Interface)
	}
	for _, part := range [][2]string{{"interface", r.Interface}, {"version", r.Version}, {"group", r.Group}} {
		if strings.ContainsAny(part[1], ":/? \t\n") {
			v.errorf(path+"."+part[0], "%q holds one of : / ? or white space, which no service key can", part[1])
		}
	}
	if r.Protocol != "" {
		v.protocol(path+".protocol", r.Protocol)
	}
}

func (v *validator) guard(path string, g Guard) {
	if !(g.Share >= 0 && g.Share <= 1) { // nor NaN
		v.errorf(path+".share", "%v is no part of a whole; write 0 to 1, such as 0.3", g.Share)
	}
	if g.AtLeast < 0 {
		v.errorf(path+".atLeast", "%d is less than nothing", g.AtLeast)
	}
}

func (v *validator) patterns(path string, patterns []string) {
	for i, p := range patterns {
		v.pattern(path+"["+strconv.Itoa(i)+"]", p)
	}
}

func (v *validator) pattern(path, pattern string) {
	if _, err := naming.ParsePattern(pattern); err != nil {
		v.errorf(path, "%v", err)
	}
}

func (v *validator) prefixes(path string, prefixes []netip.Prefix) {
	for i, p := range prefixes {
		if p != p.Masked() {
			v.errorf(path+"["+strconv.Itoa(i)+"]", "%s has bits beyond its length; did you mean %s?", p, p.Masked())
		}
	}
}

// protocol checks what becomes the scheme of a URL.
func (v *validator) protocol(path, protocol string) {
	for _, r := range protocol {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("+-.", r) {
			v.errorf(path, "%q is no protocol; write it in lower case, such as tri or dubbo", protocol)
			return
		}
	}
	if protocol == "" {
		v.errorf(path, "missing; such as tri or dubbo")
	}
}
