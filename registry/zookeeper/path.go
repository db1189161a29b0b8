package zookeeper

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/registry"
)

func inFurtherParent(name string) bool { return strings.HasPrefix(name, "/") }

// checkName returns an error if the name is invalid for a node of the layout.
func (l location) checkName(name string) error {
	if _, multi := l.layout.(MultiPath); multi && inFurtherParent(name) {
		name = baseOf(name)
	}
	return checkName(name)
}

// checkName returns an error if the name is invalid for a node, by the rules of ZooKeeper's
// PathUtils, which checks UTF-16 units.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) {
		return fmt.Errorf("%w: invalid name of a node: %.80q", registry.ErrRefused, name)
	}
	for _, r := range name {
		if r == '/' || !validRune(r) {
			return fmt.Errorf("%w: invalid name of a node: %.80q contains %U", registry.ErrRefused, name, r)
		}
	}
	return nil
}

func validRune(r rune) bool {
	if r > 0x1f && r < 0x7f { // the common case
		return true
	}
	if utf16.RuneLen(r) != 1 { // a pair of surrogates
		return false
	}
	return r > 0x9f && (r < 0xd800 || r > 0xf8ff) && r < 0xfff0
}

// parentOf returns the path above a path; that of /a and of / is /.
func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 1)]
}

func baseOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// prefixes returns all paths above a path except for /, and the path itself, from the top.
func prefixes(path string) []string {
	var out []string
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			out = append(out, path[:i])
		}
	}
	return out
}
