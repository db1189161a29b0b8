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

// maxFile is more than any sensible configuration and less than what would
// hurt to read.
const maxFile = 1 << 20

// Load reads and validates a file. Where anything is wrong with it, the error
// is Errors, which holds everything that is.
func Load(path string, env Lookup) (*Config, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, unread(path, err)
	}
	return Parse(path, data, env)
}

var errNoFile = errors.New("is no file of at most 1MiB")

// ReadFile returns what a configuration file holds. It never waits for a
// writer, as a named pipe would have it do.
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
		return nil, errNoFile
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // it may grow
	if len(data) > maxFile {
		return nil, errNoFile
	}
	return data, err
}

// Parse reads and validates a configuration; name is that of the file in
// errors. Where anything is wrong, the error is Errors.
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
		if !wrong[f.Path] { // what could not be read has no second error
			errs = append(errs, f)
		}
	}
	if len(errs) > 0 {
		return nil, errs.sorted()
	}
	return c, nil
}

// decode reads a document, and reports what of its form is wrong. Without one it
// returns what a file means that says nothing.
func decode(name string, root ast.Node, env Lookup) (*Config, Errors) {
	d := decoder{env: env, anchors: make(map[string]ast.Node), places: places{file: name, at: make(map[string]place)}}
	c := &Config{}
	if root == nil {
		root, _ = parse(name, []byte("{}"))
	}
	d.root(c, root)
	c.places = d.places
	complete(c)
	return c, d.errs
}

// parse returns the one document of a file.
func parse(name string, data []byte) (ast.Node, *Error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // as some editors begin a file
	tokens := lexer.Tokenize(string(data))
	if deep := tooDeep(tokens); deep != nil {
		return nil, &Error{File: name, Line: deep.Line, Column: deep.Column, Message: fmt.Sprintf("is nested more than %d deep; a configuration has no more than ten", maxDepth)}
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
			return nil, &Error{File: name, Line: at.Line, Column: at.Column, Message: "a second document; a configuration is one"}
		}
		root = doc.Body
	}
	if root == nil {
		return nil, &Error{File: name, Message: "is empty; it requires owner, registries and bridges"}
	}
	return root, nil
}

// maxDepth is more than any configuration has. The parser's memory grows
// with the square of the depth.
const maxDepth = 50

// tooDeep returns where brackets, or the dashes of one line, go deeper than a
// configuration does; nil if they do not. What is nested by indentation is
// bounded by the size of the file.
func tooDeep(tokens token.Tokens) *token.Position {
	brackets, dashes, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			dashes, line = 0, t.Position.Line
		}
		switch t.Type { //nolint:exhaustive // others open nothing
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

// flowHint explains the one mistake that YAML explains badly.
func flowHint(data []byte, line int) string {
	lines := strings.Split(string(data), "\n")
	if line < 1 || line > len(lines) || !strings.Contains(lines[line-1], "${") {
		return ""
	}
	return `; inside { } and [ ] a variable must have quotes: "${VAR}"`
}

func reason(err error) string {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// ReadAccess reads which bridge runs with a file, and where that is asked: its owner,
// admin and telemetry, whatever else is wrong with it, since the bridge that runs read the
// file as it was before. Wrong is all of that; its path is empty if nothing could be read,
// and the configuration is that of an empty file. An error is that there is no such file.
func ReadAccess(path string, env Lookup) (c *Config, wrong Errors, err error) {
	data, err := ReadFile(path)
	if err != nil {
		return &Config{}, nil, unread(path, err)
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

func unread(path string, err error) Errors {
	return Errors{{File: path, Message: reason(err) + "; name the configuration with --config"}}
}

// Under returns those errors that are about one section of the file, such as
// admin; of the empty section those about the file as a whole.
func (fs Errors) Under(section string) Errors {
	return slices.DeleteFunc(slices.Clone(fs), func(f Error) bool {
		top, _, _ := strings.Cut(f.Path, ".")
		return top != section
	})
}
