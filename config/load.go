package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile exceeds every sensible configuration and is still cheap to read.
const maxFile = 1 << 20

// Load reads and validates a file. The error is Errors, with all errors of the
// file.
func Load(path string, env Lookup) (*Config, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return Parse(path, data, env)
}

var errNotRegular = errors.New("must be a regular file of at most 1MiB")

// ReadFile returns the content of a configuration file. It refuses a named
// pipe instead of waiting for its writer.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // it may grow
	if len(data) > maxFile {
		return nil, errNotRegular
	}
	return data, err
}

// Parse decodes and validates a configuration; name is the file that errors
// name. The error is Errors, with all errors of the configuration.
func Parse(name string, data []byte, env Lookup) (*Config, error) {
	root, syntax := parse(name, data)
	if syntax != nil {
		return nil, Errors{*syntax}
	}
	c, errs := decode(name, root, env)
	wrong := make(map[string]bool, len(errs))
	for _, f := range errs {
		wrong[f.Path] = true
	}
	for _, f := range c.Validate() {
		if !wrong[f.Path] { // one error is enough for a value that could not be decoded
			errs = append(errs, f)
		}
	}
	if len(errs) > 0 {
		return nil, errs.sorted()
	}
	return c, nil
}

// decode decodes a document and returns the errors of its form. Without a
// document it returns the configuration of an empty object.
func decode(name string, root ast.Node, env Lookup) (*Config, Errors) {
	d := decoder{env: env, anchors: make(map[string]ast.Node), places: places{file: name, at: make(map[string]place)}}
	c := &Config{}
	if root == nil {
		root, _ = parse(name, []byte("{}"))
	}
	d.root(c, root)
	c.places = d.places
	completeFormats(c)
	return c, d.errs
}

// parse returns the one document of a file.
func parse(name string, data []byte) (ast.Node, *Error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // some editors write a byte order mark
	tokens := lexer.Tokenize(string(data))
	if deep := tooDeep(tokens); deep != nil {
		return nil, &Error{File: name, Line: deep.Line, Column: deep.Column, Message: fmt.Sprintf(
			"is nested more than %d levels deep; a configuration has at most ten", maxDepth)}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		f := Error{File: name, Message: "not YAML: " + err.Error()}
		if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			f.Message = "not YAML: " + syntax.Message
			if syntax.Token != nil {
				f.Message += flowHint(data, syntax.Token.Position.Line)
				f.Line, f.Column = syntax.Token.Position.Line, syntax.Token.Position.Column
			}
		}
		return nil, &f
	}
	var root ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue
		}
		if root != nil {
			at := doc.Body.GetToken().Position
			return nil, &Error{
				File: name, Line: at.Line, Column: at.Column,
				Message: "a second YAML document; write the configuration as one",
			}
		}
		root = doc.Body
	}
	if root == nil {
		return nil, &Error{File: name, Message: "is empty; it requires owner, registries and bridges"}
	}
	return root, nil
}

// maxDepth exceeds the depth of every configuration. The memory of the parser
// grows with the square of the depth.
const maxDepth = 50

// tooDeep returns the position at which brackets, or the dashes of one line,
// exceed maxDepth, and nil if they do not. Nesting by indentation is bounded by
// the size of the file.
func tooDeep(tokens token.Tokens) *token.Position {
	brackets, dashes, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			dashes, line = 0, t.Position.Line
		}
		switch t.Type { //nolint:exhaustive // the other types do not nest
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			dashes++
		}
		if brackets > maxDepth || dashes > 2*maxDepth {
			return t.Position
		}
	}
	return nil
}

// flowHint explains a mistake for which YAML has a misleading message. It is
// empty for a line without a variable.
func flowHint(data []byte, line int) string {
	lines := strings.Split(string(data), "\n")
	if line < 1 || line > len(lines) || !strings.Contains(lines[line-1], "${") {
		return ""
	}
	return `; inside { } and [ ] a variable must have quotes: "${VAR}"`
}

// withoutPath returns the message of a file error without the name of the file.
func withoutPath(err error) string {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// ReadAccess reads the settings by which the API of a running bridge is reached:
// owner, admin and telemetry. It returns them even if the file has errors, since
// the running bridge may have read an earlier version of the file. All errors are
// in wrong. If nothing could be decoded, the configuration is that of an empty
// file, and the error in wrong has no path. It fails if the file cannot be read.
func ReadAccess(path string, env Lookup) (c *Config, wrong Errors, err error) {
	data, err := ReadFile(path)
	if err != nil {
		return &Config{}, nil, unreadable(path, err)
	}
	root, syntax := parse(path, data)
	c, wrong = decode(path, root, env)
	if syntax != nil {
		wrong = Errors{*syntax}
	} else {
		wrong = append(wrong, c.Validate()...)
	}
	if !nameForm.MatchString(c.Owner) {
		c.Owner = ""
	}
	return c, wrong.sorted(), nil
}

func unreadable(path string, err error) Errors {
	return Errors{{File: path, Message: withoutPath(err) + "; name the configuration with --config"}}
}

// Under returns the errors of one section of the file, such as admin. For the
// empty section it returns the errors of the file as a whole.
func (fs Errors) Under(section string) Errors {
	return slices.DeleteFunc(slices.Clone(fs), func(f Error) bool {
		top, _, _ := strings.Cut(f.Path, ".")
		return top != section
	})
}
