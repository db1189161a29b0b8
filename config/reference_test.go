package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
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

// Reference returns the page of all keys, as Markdown. It is the same on
// every call.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	rows(&b, "", fieldsOf(reflect.TypeFor[Config]()))
	return b.String()
}

const referenceHead = `# Configuration reference

Generated from the types of package config by ` + "`make golden`" + `; do not edit.
An editor checks a file that begins with
` + "`# yaml-language-server: $schema=config.schema.json`" + `.

Values may hold ` + "`${VAR}` and `${VAR:-default}`; `$${` is a literal `${`" + `. A variable that is
not set and has no default is an error. Secrets never are in the file; a key
that ends in File names the file that holds one.

| key | default | allowed | meaning |
|---|---|---|---|
`

func rows(b *strings.Builder, prefix string, fields []field) {
	for _, f := range fields {
		key, t := element(join(prefix, f.key), f.typ)
		name := scalarOf(t).name
		if isObjectType(t) {
			name = "object"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", key, defaultText(f), cmp.Or(strings.Join(f.enum, ", "), name), f.doc)
		if isObjectType(t) {
			rows(b, key, fieldsOf(t))
		}
	}
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
