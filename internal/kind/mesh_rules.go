package kind

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// A rulesFile is what import.rulesFile names.
type rulesFile struct {
	rules   dataplane.Rules
	refused config.Errors // the rules that are not followed

	path string
	all  []ruleText // the documents of the rules
}

// A ruleText is a document of a rules file.
type ruleText struct {
	line int // before its first
	body ast.Node
	json []byte
}

// readRules reads a file of rules for data planes; an empty path is none. A document
// that is refused affects only itself.
func readRules(path string) (*rulesFile, error) {
	f := &rulesFile{path: path}
	if path == "" {
		return f, nil
	}
	data, err := config.ReadFile(path)
	if err != nil {
		return nil, err
	}
	line := 0
	for _, part := range documentsOf(data) {
		d := ruleText{line: line}
		if err := d.parse(part); err != nil {
			f.refused = append(f.refused, f.unread(d, err))
		} else if d.body != nil {
			f.all = append(f.all, d)
		}
		line += bytes.Count(part, []byte("\n"))
	}
	documents := make([][]byte, len(f.all))
	for i, d := range f.all {
		documents[i] = d.json
	}
	rules, refused := dataplane.ParseRules(documents)
	f.rules = rules
	for _, r := range refused {
		f.refused = append(f.refused, f.errorAt(r.Document, r.Path, r.Error()))
	}
	return f, nil
}

// documentsOf splits YAML at its markers, so that a document that is no YAML does not
// hide the others. Each part but the first begins with its marker.
func documentsOf(data []byte) [][]byte {
	var all [][]byte
	begin := 0
	for at := 0; at < len(data); {
		end := bytes.IndexByte(data[at:], '\n') + 1
		if end == 0 {
			end = len(data) - at
		}
		if line := data[at : at+end]; at > begin && bytes.HasPrefix(line, []byte("---")) && len(bytes.TrimLeft(line[3:4], " \t\r\n")) == 0 {
			all, begin = append(all, data[begin:at]), at
		}
		at += end
	}
	return append(all, data[begin:])
}

// parse reads a document; without a body it has none.
func (d *ruleText) parse(text []byte) error {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return err
	}
	for _, one := range file.Docs {
		if one.Body == nil || one.Body.Type() == ast.NullType || one.Body.Type() == ast.CommentType {
			continue
		}
		var value any
		if err := yaml.NodeToValue(one.Body, &value); err != nil {
			return err
		}
		if d.json, err = json.Marshal(value); err != nil {
			return err
		}
		d.body = one.Body
	}
	return nil
}

// unread returns why a document is no YAML.
func (f *rulesFile) unread(d ruleText, err error) config.Error {
	e := config.Error{File: f.path, Line: d.line + 1, Column: 1, Message: err.Error()}
	if at, ok := errors.AsType[yaml.Error](err); ok {
		e.Message = at.GetMessage()
		if t := at.GetToken(); t != nil {
			e.Line, e.Column = d.line+t.Position.Line, t.Position.Column
		}
	}
	e.Message = "document is ignored: " + e.Message
	return e
}

// errorAt returns an error at a field of a document, or at the nearest that the file has.
func (f *rulesFile) errorAt(document int, path, message string) config.Error {
	d := f.all[document]
	e := config.Error{File: f.path, Message: message}
	for {
		node := d.body
		if p, err := yaml.PathString("$." + path); path != "" && err == nil {
			node, _ = p.FilterNode(d.body)
		}
		if node != nil && node.GetToken() != nil {
			at := firstToken(node)
			e.Line, e.Column = d.line+at.Line, at.Column
			return e
		}
		if path == "" {
			return e
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// firstToken returns where a node begins.
func firstToken(node ast.Node) *token.Position {
	switch n := node.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 && !n.IsFlowStyle {
			return n.Values[0].Key.GetToken().Position
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken().Position
	}
	return node.GetToken().Position
}

// warnings are of hosts that no bridge can serve, such as misspelled ones.
func (f *rulesFile) warnings(served []naming.MeshHosts) (all config.Errors) {
	for _, h := range f.rules.Hosts() {
		if slices.ContainsFunc(served, func(m naming.MeshHosts) bool { return m.Has(h.Host) }) {
			continue
		}
		var ends []string
		for _, m := range served {
			ends = append(ends, "."+m.Registry+"."+m.Suffix)
		}
		all = append(all, f.errorAt(h.Document, h.Path, fmt.Sprintf("%s: %s is no host that bridges serve here: theirs end in %s",
			h.Path, naming.Quote(h.Host), strings.Join(ends, " or "))))
	}
	return all
}

// CheckFiles returns the errors of the files that a configuration names, with rules that
// are not followed.
func CheckFiles(cfg *config.Config) config.Errors {
	unusable, refused := FileErrors(cfg)
	return append(unusable, refused...)
}

// FileErrors returns the errors of files that cannot be used, and apart from them the
// rules that are not followed, which a start only reports.
func FileErrors(cfg *config.Config) (unusable, refused config.Errors) {
	unusable = cfg.CheckFiles()
	for _, name := range slices.Sorted(maps.Keys(cfg.Registries)) {
		m := cfg.Registries[name].Istiod
		if m == nil {
			continue
		}
		f, err := readRules(m.Import.Rules)
		if err != nil {
			unusable = append(unusable, cfg.ErrorAt("registries."+name+".istiod.import.rulesFile", "%s", err))
			continue
		}
		refused = append(refused, f.refused...)
	}
	return unusable, refused
}

// FileWarnings returns what in the files that a configuration names is worth a second
// thought.
func FileWarnings(cfg *config.Config) (all config.Errors) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Registries)) {
		m := cfg.Registries[name].Istiod
		if m == nil {
			continue
		}
		var served []naming.MeshHosts
		for _, x := range cfg.Bridges {
			if hosts := projection.MeshHosts(x, &m.Import.Hosts); x.To == name && !slices.Contains(served, hosts) {
				served = append(served, hosts)
			}
		}
		if f, err := readRules(m.Import.Rules); err == nil && len(served) > 0 {
			all = append(all, f.warnings(served)...)
		}
	}
	return all
}
