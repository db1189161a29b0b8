package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
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
	case t == reflect.TypeFor[Duration]():
		return &schema{Type: "string", Pattern: `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$|\$\{`}
	case t == reflect.TypeFor[Size]():
		return &schema{Type: "string", Pattern: `^[0-9]+(B|KiB|MiB|GiB)?$|\$\{`}
	case text(reflect.New(t).Elem()) != nil:
		return &schema{Type: "string"}
	}
	switch t.Kind() {
	case reflect.Struct:
		return objectSchema(fieldsOf(t))
	case reflect.Slice:
		return &schema{Type: "array", Items: schemaOf(t.Elem())}
	case reflect.Map:
		return &schema{Type: "object", Additional: schemaOf(t.Elem())}
	default:
		return scalarSchema(t.Kind())
	}
}

func scalarSchema(k reflect.Kind) *schema {
	switch k {
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Float64:
		return &schema{Type: "number", Min: new(0)}
	case reflect.Int:
		return &schema{Type: "integer", Min: new(0)}
	case reflect.Uint16:
		return &schema{Type: "integer", Min: new(0), Max: new(65535)}
	default:
		return &schema{Type: "string"}
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
		if f.required {
			object.Required = append(object.Required, f.key)
		}
	}
	slices.Sort(object.Required)
	if short, ok := shorthand(fields); ok {
		word := &schema{Type: "string", Enum: short.enum, Description: short.doc}
		return &schema{AnyOf: []*schema{word, object}}
	}
	return object
}

// defaultJSON returns a default in the type that the file has it in.
func defaultJSON(f field) json.RawMessage {
	if f.def == "" {
		return nil
	}
	switch f.typ.Kind() {
	case reflect.Bool, reflect.Int, reflect.Uint16, reflect.Float64:
		return json.RawMessage(f.def)
	default:
		return json.RawMessage(strconv.Quote(f.def))
	}
}
