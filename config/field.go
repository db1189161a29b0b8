package config

import (
	"encoding"
	"reflect"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/formats"
)

// field is one key of an object of the file.
type field struct {
	index        []int // for reflect.Value.FieldByIndex
	key, doc     string
	def          string
	enum         []string
	need, filled string
	check, parts string
	short        bool
	typ          reflect.Type
}

// fieldsOf returns the keys of a type, in the order of its fields. The keys of an
// embedded type belong to the same object.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for _, sf := range reflect.VisibleFields(t) {
		key, ok := sf.Tag.Lookup("yaml")
		if !ok {
			continue
		}
		f := field{
			index: sf.Index, key: key, doc: sf.Tag.Get("doc"), def: sf.Tag.Get("default"), filled: sf.Tag.Get("filled"),
			need: sf.Tag.Get("need"), check: sf.Tag.Get("check"), short: sf.Tag.Get("short") == "true",
			parts: sf.Tag.Get("parts"), typ: sf.Type,
		}
		if values := sf.Tag.Get("enum"); values != "" {
			f.enum = strings.Split(values, "|")
		}
		if sf.Tag.Get("enum") == "formats" {
			f.enum = formats.Names()
		}
		fields = append(fields, f)
	}
	return fields
}

// shorthand returns the field that a plain value sets when it is written
// instead of the object.
func shorthand(fields []field) (field, bool) {
	for _, f := range fields {
		if f.short {
			return f, true
		}
	}
	return field{}, false
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// unmarshalerOf returns the value's own decoder, or nil if it has none.
func unmarshalerOf(v reflect.Value) encoding.TextUnmarshaler {
	u, _ := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
	return u
}
