package zktest

import (
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
	for _, u := range utf16.Encode([]rune(path)) {
		if u <= 0x1f || u >= 0x7f && u <= 0x9f || u >= 0xd800 && u <= 0xf8ff || u >= 0xfff0 {
			return false
		}
	}
	return true
}

// split returns the parent of a path and the last part of it.
func split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 1)], path[i+1:]
}

func join(parent, name string) string {
	if parent == "/" {
		return "/" + name
	}
	return parent + "/" + name
}
