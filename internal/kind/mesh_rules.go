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

// A rulesFile is the content of import.rulesFile. It is immutable once read.
type rulesFile struct {
	rules   dataplane.Rules
	refused config.Errors // the rejected rules, which data planes ignore

	path      string
	documents []ruleDocument // the documents of the rules
}

// A ruleDocument is a YAML document of a rules file.
type ruleDocument struct {
	line int // lines of the file before the document
	body ast.Node
	json []byte
}

// readRules reads a file of rules for data planes. For an empty path it returns no rules. A
// rejected document affects only itself.
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
	for _, part := range splitDocuments(data) {
		d := ruleDocument{line: line}
		if err := d.parse(part); err != nil {
			f.refused = append(f.refused, f.syntaxError(d, err))
		} else if d.body != nil {
			f.documents = append(f.documents, d)
		}
		line += bytes.Count(part, []byte("\n"))
	}
	documents := make([][]byte, len(f.documents))
	for i, d := range f.documents {
		documents[i] = d.json
	}
	rules, refused := dataplane.ParseRules(documents)
	f.rules = rules
	for _, r := range refused {
		f.refused = append(f.refused, f.errorAt(r.Document, r.Path, r.Error()))
	}
	return f, nil
}

// splitDocuments splits YAML at its document markers, so that a syntax error in one
// document does not affect the others. Each part except the first begins with its marker.
func splitDocuments(data []byte) [][]byte {
	var all [][]byte
	begin := 0
	for at := 0; at < len(data); {
		end := bytes.IndexByte(data[at:], '\n') + 1
		if end == 0 {
			end = len(data) - at
		}
		line := data[at : at+end]
		if at > begin && bytes.HasPrefix(line, []byte("---")) && len(bytes.TrimLeft(line[3:4], " \t\r\n")) == 0 {
			all, begin = append(all, data[begin:at]), at
		}
		at += end
	}
	return append(all, data[begin:])
}

// parse sets the body and the JSON of a document. The body stays nil if the document is
// empty.
func (d *ruleDocument) parse(text []byte) error {
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

// syntaxError returns the error of parsing a document, with its position in the file.
func (f *rulesFile) syntaxError(d ruleDocument, err error) config.Error {
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

// errorAt returns an error at a field of a document. If the file does not have the field,
// the position is that of the nearest enclosing field.
func (f *rulesFile) errorAt(document int, path, message string) config.Error {
	d := f.documents[document]
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

// firstToken returns the position at which a node begins.
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

// warnings returns a warning for each host in the rules that no bridge can serve, such as a
// misspelled host.
func (f *rulesFile) warnings(served []naming.MeshHosts) (all config.Errors) {
	for _, h := range f.rules.Hosts() {
		if slices.ContainsFunc(served, func(m naming.MeshHosts) bool { return m.Has(h.Host) }) {
			continue
		}
		var suffixes []string
		for _, m := range served {
			suffixes = append(suffixes, "."+m.Registry+"."+m.Suffix)
		}
		all = append(all, f.errorAt(h.Document, h.Path, fmt.Sprintf("%s: no bridge serves the host %s here: served hosts end in %s",
			h.Path, naming.Quote(h.Host), strings.Join(suffixes, " or "))))
	}
	return all
}

// CheckFiles returns the errors of the files that a configuration names, including rejected
// rules.
func CheckFiles(cfg *config.Config) config.Errors {
	unusable, refused := FileErrors(cfg)
	return append(unusable, refused...)
}

// FileErrors returns the errors of files that cannot be used and, separately, rejected
// rules. A start only reports rejected rules.
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

// FileWarnings returns warnings about the files that a configuration names.
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
