package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Error is one error of a configuration, with its place in the file.
type Error struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"` // from 1; 0 if unknown
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"` // such as bridges[1].to
	Message string `json:"message"`
}

// Error returns the error on one line: place, path, message.
func (f Error) Error() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File + ":")
	}
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", f.Line, f.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	return b.String() + f.Message
}

// Errors are all errors of a configuration, in the order of the file.
type Errors []Error

// Error returns the errors, one per line.
func (fs Errors) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// ErrorAt returns an error at a path of the configuration, for callers that
// find errors which Validate cannot find.
func (c *Config) ErrorAt(path, format string, args ...any) Error {
	return c.places.errorAt(path, format, args...)
}

func (fs Errors) sorted() Errors {
	slices.SortStableFunc(fs, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return fs
}

type place struct{ line, column int }

// places maps each path of a file to its place.
type places struct {
	file string
	at   map[string]place
}

// errorAt returns an error at a path. Its place is that of the nearest path at
// or above it that the file has.
func (p places) errorAt(path, format string, args ...any) Error {
	f := Error{File: p.file, Path: path, Message: fmt.Sprintf(format, args...)}
	for up := path; ; up = up[:max(strings.LastIndexAny(up, ".["), 0)] {
		if at, ok := p.at[up]; ok {
			f.Line, f.Column = at.line, at.column
			return f
		}
		if up == "" {
			return f
		}
	}
}

// suggest returns `, did you mean "x"?` for the nearest known text. Without one it
// suggests the known texts that contain the given text, and otherwise lists all.
func suggest(text string, known []string) string {
	if near := naming.Near(text, known, 1); len(near) > 0 {
		return `, did you mean ` + strconv.Quote(near[0]) + `?`
	}
	if len(known) == 0 {
		return ""
	}
	known = slices.Sorted(slices.Values(known))
	const minLetters = 3 // fewer are contained in many texts
	if near := slices.DeleteFunc(slices.Clone(known), func(k string) bool {
		return len(text) < minLetters || !strings.Contains(strings.ToLower(k), strings.ToLower(text))
	}); len(near) > 0 {
		return `, did you mean "` + strings.Join(near, `" or "`) + `"?`
	}
	return "; expected one of " + strings.Join(known, ", ")
}
