package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Error is one thing that is wrong with a configuration.
type Error struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"` // from 1; 0 where no place is known
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"` // as in bridges[1].to
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

// Errors is everything that is wrong with a configuration, in the order of
// the file.
type Errors []Error

// Error returns the errors, one a line.
func (fs Errors) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// ErrorAt returns an error of the configuration at a path, for those who find
// one that Validate cannot know.
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

// places holds the place of each path of a file.
type places struct {
	file string
	at   map[string]place
}

// errorAt returns an error at a path, or at the nearest path above it that the
// file holds.
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

// suggest returns `, did you mean "x"?` for the nearest known text or those that contain
// it, or else the list of the known texts.
func suggest(text string, known []string) string {
	if near := naming.Near(text, known, 1); len(near) > 0 {
		return `, did you mean ` + strconv.Quote(near[0]) + `?`
	}
	if len(known) == 0 {
		return ""
	}
	known = slices.Sorted(slices.Values(known))
	const least = 3 // letters; fewer are in many texts
	if near := slices.DeleteFunc(slices.Clone(known), func(k string) bool {
		return len(text) < least || !strings.Contains(strings.ToLower(k), strings.ToLower(text))
	}); len(near) > 0 {
		return `, did you mean "` + strings.Join(near, `" or "`) + `"?`
	}
	return "; known here: " + strings.Join(known, ", ")
}
