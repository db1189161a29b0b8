package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
)

// schema is the part of JSON Schema 2020-12 that describes a Config.
type schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        string             `json:"type,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Default     json.RawMessage    `json:"default,omitempty"`
	AnyOf       []*schema          `json:"anyOf,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	MinItems    int                `json:"minItems,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Additional  any                `json:"additionalProperties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Min         *int               `json:"minimum,omitempty"`
	Max         *int               `json:"maximum,omitempty"`
}

// Schema returns the JSON Schema of the file, for editors that follow a
// `# yaml-language-server: $schema=` comment. It is the same on every call.
func Schema() ([]byte, error) {
	root := schemaOf(reflect.TypeFor[Config]())
	root.Dialect, root.Title = "https://json-schema.org/draft/2020-12/schema", "xds-bridge configuration"
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return out.Bytes(), nil
}

func schemaOf(t reflect.Type) *schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isObjectType(t):
		return objectSchema(fieldsOf(t))
	case t.Kind() == reflect.Slice:
		return &schema{Type: "array", Items: schemaOf(t.Elem())}
	case t.Kind() == reflect.Map:
		return &schema{Type: "object", Additional: schemaOf(t.Elem())}
	}
	s := scalarOf(t).schema
	return &s
}

func isObjectType(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && unmarshalerOf(reflect.New(t).Elem()) == nil
}

// scalar describes a simple type.
type scalar struct {
	schema schema
	name   string // in the reference page
	bare   bool   // without quotes in JSON
}

func scalarOf(t reflect.Type) scalar {
	switch {
	case t == reflect.TypeFor[Duration]():
		return scalar{schema{Type: "string", Pattern: `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$|\$\{`}, "duration", false}
	case t == reflect.TypeFor[Size]():
		return scalar{schema{Type: "string", Pattern: `^[0-9]+(B|KiB|MiB|GiB)?$|\$\{`}, "size", false}
	case t == reflect.TypeFor[netip.Prefix]():
		return scalar{schema{Type: "string"}, "network", false}
	}
	switch t.Kind() {
	case reflect.Bool:
		return scalar{schema{Type: "boolean"}, "true, false", true}
	case reflect.Float64:
		return scalar{schema{Type: "number", Min: new(0)}, "number", true}
	case reflect.Int:
		return scalar{schema{Type: "integer", Min: new(0)}, "number", true}
	case reflect.Uint16:
		return scalar{schema{Type: "integer", Min: new(0), Max: new(65535)}, "number", true}
	default:
		return scalar{schema{Type: "string"}, "text", false}
	}
}

func objectSchema(fields []field) *schema {
	object := &schema{Type: "object", Properties: make(map[string]*schema, len(fields)), Additional: false}
	for _, f := range fields {
		s := schemaOf(f.typ)
		s.Description, s.Enum, s.Default = f.doc, f.enum, defaultJSON(f)
		if f.filled != "" {
			s.MinItems = 1
		}
		object.Properties[f.key] = s
		if f.need != "" {
			object.Required = append(object.Required, f.key)
		}
	}
	slices.Sort(object.Required)
	if short, ok := shorthand(fields); ok {
		value := &schema{Type: "string", Enum: short.enum, Description: short.doc}
		return &schema{AnyOf: []*schema{value, object}}
	}
	return object
}

// defaultJSON returns a default as a JSON value of the key's type.
func defaultJSON(f field) json.RawMessage {
	if f.def == "" {
		return nil
	}
	if scalarOf(f.typ).bare {
		return json.RawMessage(f.def)
	}
	return json.RawMessage(strconv.Quote(f.def))
}

// Reference returns the page of all keys, as Markdown, which begins with a whole
// file. It is the same on every call.
func Reference(file string) string {
	p := page{printed: make(map[reflect.Type]string)}
	fmt.Fprintf(&p.text, referenceHead, file)
	p.section("", reflect.TypeFor[Config]())
	return p.text.String()
}

const referenceHead = "# Configuration reference\n\n" +
	"For operators who write or review the configuration file. Generated from the types of package config by `make golden`; do not edit.\n\n" +
	"- An editor checks a file that begins with `# yaml-language-server: $schema=config.schema.json`. `xds-bridge validate` checks it on the command line.\n" +
	"- Values may contain `${VAR}` and `${VAR:-default}`. `$${` is a literal `${`. A variable that is not set and has no default is an error.\n" +
	"- The file contains no secrets. A key that ends in `File` names the file that contains one.\n\n" +
	"## A whole file\n\nIt has every section once. Remove what you do not need.\n\n```yaml\n%s```\n"

// page is the page while it is written.
type page struct {
	text    strings.Builder
	printed map[reflect.Type]string // the heading or key under which the keys of a type are
}

// section writes the keys of an object as a table, and sections for its larger objects.
func (p *page) section(heading string, t reflect.Type) {
	fmt.Fprintf(&p.text, "\n## %s\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n", cmp.Or(heading, "Top level"))
	type object struct {
		heading string
		typ     reflect.Type
	}
	var larger []object
	var rows func(prefix string, t reflect.Type)
	rows = func(prefix string, t reflect.Type) {
		for _, f := range fieldsOf(t) {
			key, t := element(join(prefix, f.key), f.typ)
			meaning, name := f.doc, scalarOf(t).name
			if isObjectType(t) {
				name = "object"
			}
			first, same := p.printed[t]
			same = same && len(fieldsOf(t)) > manyKeys
			divided := isObjectType(t) && !same && countRows(t) >= sectionRows && !strings.Contains(strings.TrimPrefix(prefix, heading), ".")
			switch {
			case same:
				meaning += " It has the keys of [" + first + "](" + anchor(first) + ")."
			case divided:
				meaning += " [Its keys](" + anchor(key) + ")"
				larger = append(larger, object{key, t})
			}
			if isObjectType(t) && !same {
				p.printed[t] = key
			}
			fmt.Fprintf(&p.text, "| `%s` | %s | %s | %s |\n", key, defaultText(f), cmp.Or(strings.Join(f.enum, ", "), name), meaning)
			if isObjectType(t) && !divided && !same {
				rows(key, t)
			}
		}
	}
	rows(heading, t)
	for _, o := range larger {
		p.section(o.heading, o.typ)
	}
}

// MissingSections returns the keys of all objects that a file does not have anywhere. Of
// objects that several keys share, such as tls, one is enough.
func MissingSections(file []byte) ([]string, error) {
	var root any
	if err := yaml.Unmarshal(file, &root); err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	present, keys := make(map[reflect.Type]bool), make(map[reflect.Type]string)
	var visit func(key string, t reflect.Type, node any)
	visit = func(key string, t reflect.Type, node any) {
		switch t.Kind() {
		case reflect.Pointer:
			visit(key, t.Elem(), node)
			return
		case reflect.Slice:
			list, _ := node.([]any)
			for _, n := range append(list, nil) {
				visit(key+"[]", t.Elem(), n)
			}
			return
		case reflect.Map:
			values, _ := node.(map[string]any)
			for _, n := range append(slices.Collect(maps.Values(values)), nil) {
				visit(key+".*", t.Elem(), n)
			}
			return
		default:
		}
		if !isObjectType(t) {
			return
		}
		object, ok := node.(map[string]any)
		present[t], keys[t] = present[t] || ok, cmp.Or(keys[t], key)
		for _, f := range fieldsOf(t) {
			visit(join(key, f.key), f.typ, object[f.key])
		}
	}
	visit("", reflect.TypeFor[Config](), root)
	var missing []string
	for t, key := range keys {
		if !present[t] {
			missing = append(missing, key)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

const (
	manyKeys    = 8 // an object of more is described once
	sectionRows = 7 // an object of as many has a table of its own
)

// countRows returns the number of keys of an object and of the objects in it.
func countRows(t reflect.Type) int {
	n := 0
	for _, f := range fieldsOf(t) {
		n++
		if _, t := element("", f.typ); isObjectType(t) {
			n += countRows(t)
		}
	}
	return n
}

// anchor returns the link to a heading, as GitHub spells it.
func anchor(heading string) string {
	return "#" + strings.Map(func(r rune) rune {
		if strings.ContainsRune(".*[]", r) {
			return -1
		}
		return unicode.ToLower(r)
	}, heading)
}

// element returns the element type of lists and named objects, and the key with
// their marks.
func element(key string, t reflect.Type) (string, reflect.Type) {
	for {
		switch t.Kind() {
		case reflect.Slice:
			key += "[]"
		case reflect.Map:
			key += ".*"
		case reflect.Pointer:
		default:
			return key, t
		}
		t = t.Elem()
	}
}

func defaultText(f field) string {
	switch {
	case f.need != "":
		return "required"
	case f.def != "":
		return "`" + f.def + "`"
	default:
		return ""
	}
}
