package kind

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/registry"
)

// places are all there are, in the order of the page; the last is written alone.
func spots() []spot {
	var all []spot
	for _, name := range slices.Sorted(slices.Values(formats.Names())) {
		if has(name, format.ZooKeeper) {
			all = append(all, spot{name, "zk"})
		}
		if has(name, format.Nacos) {
			all = append(all, spot{name, "n"})
		}
	}
	return append(all, spot{"mesh", ""})
}

// has reports whether a format has a form in a kind of registry.
func has(name, kind string) bool {
	d, _ := formats.Find(name)
	return d.Forms[kind] != nil
}

// A field is one thing that providers say.
type field struct {
	name string
	tags bool // with tags: true
	set  func(*said)
	in   func(spot) bool // where providers can say it; nil: everywhere
	get  func(said) string
	term string // by which a reason says that it is left out
	user bool   // it is metadata of a user

	protocol string // that the provider speaks; empty: one that consumers of the other format do
}

func value(s *said, key, v string) { s.user = map[string]string{"team": "blue", key: v} }

// fields are what the page has a table of.
func fields() []field {
	dubbo := spot.dubbo
	all := []field{
		{name: "path", in: dubbo, set: func(s *said) { s.path = "api/x.Orders" }, get: func(s said) string { return s.path }, term: "path"},
		{
			name: "tag (`dubbo.tag`), by default", in: dubbo, set: func(s *said) { value(s, "dubbo.tag", "gray") },
			get: func(s said) string { return s.user["dubbo.tag"] }, term: "tag",
		},
		{
			name: "tag (`dubbo.tag`) with `tags: true`", tags: true, set: func(s *said) { value(s, "dubbo.tag", "gray") },
			get: func(s said) string { return s.user["dubbo.tag"] }, term: "tag",
		},
		{
			name: "weight, three times the normal one (300 hundredths)", in: func(p spot) bool { return p.String() != "spring-cloud in ZooKeeper" },
			set: func(s *said) { s.weight = "300" }, get: func(s said) string { return s.weight }, term: "weight",
		},
		{name: "weight 0", in: dubbo, set: func(s *said) { s.weight = "0" }, get: func(s said) string { return s.weight }, term: "weight"},
		{
			name: "disabled, or a weight of 0 where that hides", in: func(p spot) bool {
				return !strings.HasPrefix(p.String(), "hertz in Z") && p.String() != "plain in ZooKeeper"
			},
			set: func(s *said) { s.hidden = true }, get: func(said) string { return "" }, term: "-",
		},
		{name: "version", in: dubbo, set: func(s *said) { s.version = "1.0" }, get: func(s said) string { return s.version }, term: "version"},
		{name: "group", in: dubbo, set: func(s *said) { s.group = "g1" }, get: func(s said) string { return s.group }, term: "group"},
		{name: "IPv6", set: func(s *said) { s.host = "2001:db8::1" }, get: func(s said) string { return s.host }, term: "IPv6"},
		{
			name: "host name", set: func(s *said) { s.host = "orders.example.com" },
			get: func(s said) string { return s.host }, term: "-",
		},
	}
	for _, protocol := range []string{"tri", "dubbo", "rest", "grpc", "http", "thrift", "tcp"} {
		all = append(all, field{
			name: "protocol " + protocol, set: func(*said) {}, in: func(p spot) bool { return slices.Contains(p.speaks(), protocol) },
			get: func(s said) string { return s.protocol }, term: "speaks", protocol: protocol,
		})
	}
	for _, key := range userKeys() {
		all = append(all, field{
			name: "`" + key + "`", set: func(s *said) { value(s, key, "beta") }, term: `"` + key + `"`, user: true,
			in:  func(p spot) bool { return !slices.Contains(p.words(), key) && (key != "dubbo" || !p.dubbo()) },
			get: func(s said) string { return s.user[key] },
		})
	}
	return all
}

// userKeys are names of metadata that some format reserves, and one that none does.
func userKeys() []string {
	return []string{
		"team", "id", "path", "category", "side", "interface", "weight", "enabled", "disabled", "secure", "pid", "timestamp", "protocol",
		"kind", "version", "group", "gRPC_port", "instance_status", "IPv6", "meta-v", "nacos.category", "bind.ip", "qos.enable", "tlsMode",
		"preserved.x", "dubbo.endpoints", "dubbo.metadata.x", "registry.id",
	}
}

// words are the names of metadata that are a format's own: no user can have
// them there.
func (p spot) words() []string {
	words := map[string][]string{
		"dubbo-interface": {
			"path", "category", "side", "interface", "weight", "enabled", "disabled", "pid", "timestamp", "protocol", "version", "group",
			"nacos.category", "bind.ip", "qos.enable",
		},
		"kratos": {"weight", "version"}, "spring-cloud": {"instance_status", "gRPC_port"}, "gozero": {"gRPC_port"},
	}[p.format]
	if p.format == "dubbo-application" {
		words = append(spot{"dubbo-interface", ""}.words(), "id", "meta-v", "registry.id", "dubbo.endpoints", "dubbo.metadata.x")
	}
	if p.at == "n" {
		words = append(words, map[string][]string{"kratos": {"kind"}, "spring-cloud": {"secure", "IPv6"}}[p.format]...)
	}
	if p.at == "n" && !p.dubbo() {
		words = append(words, "preserved.x", "dubbo.endpoints", "dubbo.metadata.x")
	}
	if !p.dubbo() {
		words = append(words, "dubbo.endpoints", "dubbo.metadata.x")
	}
	return words
}

// A cell is the result of a field between two places.
type cell struct{ kind, text string }

const (
	kept      = "kept"
	converted = "converted"
	omitted   = "left out"
	strangers = "" // no consumer of the one speaks what providers of the other do
)

// cross registers a provider at one place as its framework does, and looks at
// it at another as consumers do.
func (f field) cross(t *testing.T, codecs func(spot, bool) metadata.Encoder, from, to spot) cell {
	t.Helper()
	for _, protocol := range from.speaks() {
		if f.protocol != "" && protocol != f.protocol {
			continue
		}
		s := said{protocol: protocol, host: "10.0.0.1", user: map[string]string{"team": "blue"}}
		f.set(&s)
		source, target := codecs(from, f.tags), codecs(to, f.tags)
		entries, extras := from.register(t, source, s)
		services, skipped := source.(metadata.Codec).Decode(entries, extras)
		if len(skipped) > 0 || len(services) != 1 {
			t.Fatalf("%s from %s: %d services, skipped %v", f.name, from, len(services), skipped)
		}
		service := *services[0]
		if len(service.Interfaces) == 0 && to.dubbo() { // which a rule of names gives it
			service.Interfaces = []registry.Interface{{Name: interfaceName}}
		}
		written, left := target.Encode(&service)
		if beside, ok := errors.AsType[*registry.LeftOut](left); ok {
			left = beside.Reason
		}
		if f.protocol == "" && left != nil && strings.Contains(left.Error(), "which consumers of this format do not") {
			continue
		}
		return f.judge(t, from, to, arrival{s, written, left})
	}
	return cell{}
}

// An arrival is what a target wrote of what a provider said.
type arrival struct {
	said    said
	written []registry.Entry
	left    error
}

// judge says the result of the field. That it vanished unreported fails
// the test.
func (f field) judge(t *testing.T, from, to spot, o arrival) cell {
	t.Helper()
	s, left := o.said, o.left
	got, found := to.consume(t, o.written)
	reported := left != nil && strings.Contains(left.Error(), f.term)
	switch {
	case s.hidden && found:
		t.Errorf("%s: %s is offered in %s", f.name, from, to)
	case s.hidden:
		return cell{kept, "not offered"}
	case found && f.get(got) == f.get(s):
		if reported {
			return cell{kept, "and status says: " + f.reason(left, to)}
		}
		return cell{kept, ""}
	case reported:
		return cell{omitted, f.reason(left, to)}
	case found && f.protocol != "" && f.get(got) == "":
		return cell{converted, "what the format means"}
	case found && f.protocol != "":
		return cell{converted, f.get(got)}
	case found && f.get(got) != "" && f.term == "weight":
		return cell{converted, f.get(got) + " hundredths"}
	default:
		t.Errorf("%s: from %s to %s it vanishes: %q is %q, found %v, left out %v", f.name, from, to, f.get(s), f.get(got), found, left)
	}
	return cell{}
}

// reason is the line of what was left out that has a term, without what is
// the sample's.
func (f field) reason(left error, to spot) string {
	for line := range strings.SplitSeq(left.Error(), "\n") {
		if strings.Contains(line, f.term) {
			line = regexp.MustCompile(`^.*:8080"?:? `).ReplaceAllString(line, "")
			line = regexp.MustCompile(`"[^"]+" |, such as "[^"]+"|^[a-z-]+: |^endpoint \S+ `).ReplaceAllString(line, "")
			return regexp.MustCompile(`\b(`+to.format+`|Dubbo)\b(-\w+)?`).ReplaceAllString(line, "the format")
		}
	}
	return ""
}

// TestFields keeps testdata/fields.md as the codecs have it, and lets nothing
// vanish unreported.
func TestFields(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(fieldsHead)
	made := make(map[spot]map[bool]metadata.Encoder)
	for _, p := range spots() {
		made[p] = map[bool]metadata.Encoder{false: p.codec(t, false), true: p.codec(t, true)}
	}
	codecs := func(p spot, tags bool) metadata.Encoder { return made[p][tags] }
	var tables []string
	users := make(map[string][]string) // names of fields by their table
	for _, f := range fields() {
		table := f.table(t, codecs)
		switch {
		case !f.user:
			fmt.Fprintf(&b, "\n## %s\n\n%s", strings.ToUpper(f.name[:1])+f.name[1:], table)
		case users[table] == nil:
			tables = append(tables, table)
			fallthrough
		default:
			users[table] = append(users[table], f.name)
		}
	}
	for _, table := range tables {
		fmt.Fprintf(&b, "\n## Metadata of a user: %s\n\n%s", strings.Join(users[table], ", "), table)
	}
	const file = "testdata/fields.md"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != b.String() {
		t.Errorf("%s is stale (%v); run make golden", file, err)
	}
}

// A row is the result of a field that is reported at some places.
type row struct {
	from  []spot
	cells map[spot]cell
}

// agrees reports whether two rows say the same wherever both say something.
func (r row) agrees(o row) bool {
	for to, c := range r.cells {
		if other, there := o.cells[to]; there && other != c {
			return false
		}
	}
	return true
}

// table is the part of the page that a field has. Places whose providers'
// value is written the same are one row.
func (f field) table(t *testing.T, codecs func(spot, bool) metadata.Encoder) string {
	t.Helper()
	var rows []row
	for _, from := range spots() {
		if from.format == "mesh" || f.in != nil && !f.in(from) {
			continue
		}
		row := row{from: []spot{from}, cells: make(map[spot]cell)}
		for _, to := range spots() {
			if c := f.cross(t, codecs, from, to); c.kind != strangers {
				row.cells[to] = c
			}
		}
		if at := slices.IndexFunc(rows, row.agrees); at >= 0 {
			rows[at].from = append(rows[at].from, from)
			maps.Copy(rows[at].cells, row.cells)
			continue
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	b.WriteString("| from | kept in | converted in | left out of, and status says |\n|---|---|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", names(row.from), row.column(kept), row.column(converted), row.column(omitted))
	}
	return b.String()
}

// column says where the result of a field is of a kind.
func (r row) column(kind string) string {
	by := make(map[string][]spot)
	for _, to := range spots() {
		if c, there := r.cells[to]; there && c.kind == kind {
			by[c.text] = append(by[c.text], to)
		}
	}
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(by)) {
		part := names(by[text])
		if text != "" {
			part += ": " + text
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// names lists places, a format that is there in all registries by its name.
func names(all []spot) string {
	var out []string
	for _, p := range all {
		other := spot{p.format, map[string]string{"zk": "n", "n": "zk"}[p.at]}
		both := slices.Contains(all, other) || !slices.Contains(spots(), other)
		name := p.String()
		if both {
			name = p.format
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) == len(formats.Names())+1 {
		return "all"
	}
	return strings.Join(out, ", ")
}

const fieldsHead = `# What crosses between formats

Generated by ` + "`make golden`" + ` from the codecs; do not edit. The test that writes it registers a provider in each format as its
framework does, reads it, writes it in each other format and looks at that as a consumer's framework does: whatever of it does not
arrive is converted, or left out with a reason that ` + "`status`" + ` and ` + "`why`" + ` show. Two formats of which no consumer of the one
speaks what providers of the other do are in no row together. A service of a plain format has an interface by a rule of
` + "`names`" + ` here where Dubbo's formats need one. ` + "`mesh`" + ` is a ServiceEntry: labels of its endpoints, annotations of its own.

Not carried, and not reported: what a registrar gives its own registry (` + "`timestamp`, `pid`, `bind.*`, `qos.enable`" + ` of Dubbo;
` + "`preserved.*`" + ` in Nacos), keys without a value, and ` + "`tlsMode`" + ` of a mesh's endpoints. A weight of 0 that dubbo-go registers means
none. dubbo-go from 3.3.1 on looks at no weights in ZooKeeper at application level.
`
