package config

import (
	"fmt"
	"reflect"
	"strings"
)

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

Values may hold ` + "`${VAR}` and `${VAR:-default}`; `$${` stands for `${`" + `. A variable that is
not set and has no default is an error. Secrets never are in the file; a key
that ends in File names the file that holds one.

| key | default | allowed | meaning |
|---|---|---|---|
`

func rows(b *strings.Builder, prefix string, fields []field) {
	for _, f := range fields {
		key, t := element(join(prefix, f.key), f.typ)
		allowed := strings.Join(f.enum, ", ")
		if allowed == "" {
			allowed = typeName(t)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", key, defaultText(f), allowed, f.doc)
		if typeName(t) == "object" {
			rows(b, key, fieldsOf(t))
		}
	}
}

// element looks through lists and named objects, which it marks in the key.
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
	case f.required:
		return "required"
	case f.def != "":
		return "`" + f.def + "`"
	default:
		return ""
	}
}

// typeName says in a word what a value of a type looks like.
func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Duration]():
		return "duration"
	case t == reflect.TypeFor[Size]():
		return "size"
	case text(reflect.New(t).Elem()) != nil:
		return "network"
	}
	switch t.Kind() {
	case reflect.Struct:
		return "object"
	case reflect.Bool:
		return "true, false"
	case reflect.Int, reflect.Uint16, reflect.Float64:
		return "number"
	default:
		return "text"
	}
}
