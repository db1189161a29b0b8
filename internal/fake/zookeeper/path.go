package zookeeper

import (
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// validPath reports whether a real server takes a path; the rules are those
// of PathUtils.validatePath in ZooKeeper 3.9, which looks at UTF-16 units.
func validPath(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || !utf8.ValidString(path) {
		return false
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !slices.ContainsFunc(utf16.Encode([]rune(path)), refused)
}

// refused reports whether no path holds a UTF-16 unit: control characters,
// surrogates, the private use area and what follows the specials.
func refused(u uint16) bool {
	return u <= 0x1f || u >= 0x7f && u <= 0x9f || u >= 0xd800 && u <= 0xf8ff || u >= 0xfff0
}

// split returns the parent of a path and the last part of it.
func split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 1)], path[i+1:]
}
