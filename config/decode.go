package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// decoder fills a Config from a syntax tree. It continues after an error, to
// report all errors at once.
type decoder struct {
	env     Lookup
	anchors map[string]ast.Node
	errs    Errors
	places  places
}

func (d *decoder) root(c *Config, node ast.Node) {
	d.places.at[""] = place{1, 1} // for missing top-level keys
	d.object("", node, reflect.ValueOf(c).Elem())
}

func (d *decoder) errorf(path string, node ast.Node, format string, args ...any) {
	at := node.GetToken().Position
	d.errs = append(d.errs, Error{
		File: d.places.file, Line: at.Line, Column: at.Column, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

// value decodes a node into a variable of any kind that a Config has.
func (d *decoder) value(path string, node ast.Node, into reflect.Value) {
	node = d.resolve(node)
	at := node.GetToken().Position
	if _, known := d.places.at[path]; !known {
		d.places.at[path] = place{at.Line, at.Column}
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, node, into.Elem())
		return
	}
	switch {
	case unmarshalerOf(into) != nil:
		d.scalar(path, node, into)
	case into.Kind() == reflect.Struct:
		d.object(path, node, into)
	case into.Kind() == reflect.Slice:
		d.list(path, node, into)
	case into.Kind() == reflect.Map:
		d.mapOfNames(path, node, into)
	default:
		d.scalar(path, node, into)
	}
}

func (d *decoder) resolve(node ast.Node) ast.Node {
	for {
		switch n := node.(type) {
		case *ast.AnchorNode:
			d.anchors[n.Name.GetToken().Value] = n.Value
			node = n.Value
		case *ast.AliasNode:
			target, ok := d.anchors[n.Value.GetToken().Value]
			if !ok {
				return node
			}
			node = target
		case *ast.TagNode:
			node = n.Value
		default:
			return node
		}
	}
}

func (d *decoder) object(path string, node ast.Node, into reflect.Value) {
	fields := fieldsOf(into.Type())
	d.defaults(path, node, fields, into)
	if isNull(node) {
		return
	}
	if short, ok := shorthand(fields); ok {
		if _, scalar := node.(ast.ScalarNode); scalar {
			d.value(path, node, into.FieldByIndex(short.index))
			d.enum(path, node, short, into)
			return
		}
	}
	d.pairs(path, node, func(key string, at, value ast.Node) {
		for _, f := range fields {
			if f.key == key {
				below := join(path, key)
				d.value(below, value, into.FieldByIndex(f.index))
				d.enum(below, d.resolve(value), f, into)
				d.checkFilled(below, d.resolve(value), f)
				return
			}
		}
		d.unknown(path, key, at, fields)
	})
}

// defaults sets the default of every key.
func (d *decoder) defaults(path string, node ast.Node, fields []field, into reflect.Value) {
	for _, f := range fields {
		switch v := into.FieldByIndex(f.index); {
		case f.def != "":
			if err := setText(v, f.def); err != nil {
				d.errorf(join(path, f.key), node, "default: %v", err)
			}
		case v.Kind() == reflect.Struct && unmarshalerOf(v) == nil:
			d.defaults(join(path, f.key), node, fieldsOf(v.Type()), v)
		}
	}
}

func (d *decoder) unknown(path, key string, at ast.Node, fields []field) {
	keys := keysOf(fields)
	for _, k := range keys {
		if k == key+"File" {
			d.errorf(path, at, "%s is a secret and does not belong in this file; "+
				"write it to a separate file and name that file as %s", key, k)
			return
		}
	}
	d.errorf(join(path, key), at, "unknown key %q%s", key, suggest(key, keys))
}

func (d *decoder) enum(path string, node ast.Node, f field, into reflect.Value) {
	if len(f.enum) == 0 || isNull(node) {
		return
	}
	value := into.FieldByIndex(f.index).String()
	if slices.Contains(f.enum, value) {
		return
	}
	d.errorf(path, node, "unknown %s %q%s", f.key, value, suggest(value, f.enum))
}

// checkFilled refuses an empty list if a missing key means "all": a user who
// removes the last entry means "none".
func (d *decoder) checkFilled(path string, node ast.Node, f field) {
	seq, list := node.(*ast.SequenceNode)
	if f.filled == "" || list && len(seq.Values) > 0 || !list && !isNull(node) {
		return
	}
	d.errorf(path, node, "must not be empty, which would admit everything; "+
		"write at least one entry, or remove the key to admit all; %s", f.filled)
}

func (d *decoder) list(path string, node ast.Node, into reflect.Value) {
	if isNull(node) {
		return
	}
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		d.errorf(path, node, "expected a list; write it as [a, b]")
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(seq.Values), len(seq.Values)))
	for i, value := range seq.Values {
		d.value(path+"["+strconv.Itoa(i)+"]", value, into.Index(i))
	}
}

// mapOfNames decodes an object whose keys are names that the user chose.
func (d *decoder) mapOfNames(path string, node ast.Node, into reflect.Value) {
	if isNull(node) {
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	d.pairs(path, node, func(key string, _, value ast.Node) {
		element := reflect.New(into.Type().Elem()).Elem()
		d.value(join(path, key), value, element)
		into.SetMapIndex(reflect.ValueOf(key), element)
	})
}

// pairs calls each for every key of an object. It reports duplicate keys and
// skips them.
func (d *decoder) pairs(path string, node ast.Node, each func(key string, at, value ast.Node)) {
	object, ok := node.(ast.MapNode)
	if !ok {
		d.errorf(path, node, "expected an object of keys and values, found %q", node.GetToken().Value)
		return
	}
	first := make(map[string]int)
	for pair := object.MapRange(); pair.Next(); {
		key := pair.Key()
		name, line := key.GetToken().Value, key.GetToken().Position.Line
		switch {
		case key.IsMergeKey():
			d.errorf(path, key, "<< is not supported; write the keys out")
		case first[name] > 0:
			d.errorf(join(path, name), key, "duplicate key %q, first on line %d", name, first[name])
		default:
			first[name] = line
			d.places.at[join(path, name)] = place{line, key.GetToken().Position.Column}
			each(name, key, pair.Value())
		}
	}
}

func (d *decoder) scalar(path string, node ast.Node, into reflect.Value) {
	if isNull(node) {
		return
	}
	raw, ok := scalarText(node)
	if !ok {
		d.errorf(path, node, "expected a single value, found a list or an object; "+
			"quote a value that begins with a YAML indicator")
		return
	}
	expanded, err := expand(raw, d.env)
	if err == nil {
		err = setText(into, expanded)
	}
	if err != nil {
		d.errorf(path, node, "%v", err)
	}
}

// scalarText returns the text of a scalar as it is written: version: 1.0 is
// "1.0". It returns false for other nodes.
func scalarText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.StringNode:
		return n.Value, true
	case *ast.AliasNode:
		return "", false
	case ast.ScalarNode:
		return n.GetToken().Value, true
	case *ast.MappingNode:
		return hostPortText(n)
	}
	return "", false
}

// hostPortText undoes a mistake of the parser, which reads the plain text zk:2181 in
// {servers: [zk:2181]} as a key and a value. YAML requires a space after the
// colon for that.
func hostPortText(n *ast.MappingNode) (string, bool) {
	if len(n.Values) != 1 {
		return "", false
	}
	pair := n.Values[0]
	colon, value := pair.Start.Position, pair.Value.GetToken().Position
	text, ok := scalarText(pair.Value)
	if !ok || isNull(pair.Value) || value.Line != colon.Line || value.Column != colon.Column+1 {
		return "", false
	}
	return pair.Key.GetToken().Value + ":" + text, true
}

// setText parses a text into a variable of a simple kind.
func setText(into reflect.Value, value string) error {
	if u := unmarshalerOf(into); u != nil {
		err := u.UnmarshalText([]byte(value))
		if err != nil && into.Type() == reflect.TypeFor[netip.Prefix]() {
			return fmt.Errorf("must be a network, such as 10.0.0.0/8 (got %q)", value)
		}
		return err
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(value)
	case reflect.Bool:
		if value != "true" && value != "false" {
			return fmt.Errorf("must be true or false (got %q)", value)
		}
		into.SetBool(value == "true")
	default:
		if err := setNumber(into, value); err != nil {
			return fmt.Errorf("must be a number within range (got %q)%s", value, percentHint(value))
		}
	}
	return nil
}

// percentHint says how to write a percentage; it is empty for other texts.
func percentHint(value string) string {
	text, percent := strings.CutSuffix(value, "%")
	if n, err := strconv.ParseFloat(strings.TrimSpace(text), 64); percent && err == nil {
		return "; write " + strconv.FormatFloat(n/100, 'g', 6, 64)
	}
	return ""
}

func setNumber(into reflect.Value, value string) error {
	switch into.Kind() {
	case reflect.Float64:
		f, err := strconv.ParseFloat(value, 64)
		into.SetFloat(f)
		return err
	case reflect.Uint16:
		n, err := strconv.ParseUint(value, 10, 16)
		into.SetUint(n)
		return err
	default:
		n, err := strconv.ParseInt(value, 10, 32)
		into.SetInt(n)
		return err
	}
}

func isNull(node ast.Node) bool { return node.Type() == ast.NullType }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
