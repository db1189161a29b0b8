package redact

import (
	"bytes"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// Text returns a text in which the secrets of these forms are hidden, however
// often names, signs and values were escaped:
//
//	token=s3cret&…            a parameter of a URL
//	"token":"s3cret"          a member of JSON; lists, objects and bare values too
//	Authorization: Bearer …   a header, or a line of YAML
//	dubbo://user:s3cret@host  a URL with a user
//
// It looks at the text with all escapes undone, and hides what that came from.
// What ends a value is escaped no more often than what began it: an escaped
// sign is part of the value.
func Text(s string) string {
	if !strings.ContainsAny(s, "=:%") && !strings.Contains(s, "earer") {
		return s
	}
	v := plain(s)
	var out strings.Builder
	done := 0 // of s
	for i := 0; i < len(v.text); i++ {
		from, to := v.secret(i)
		if from < 0 || to <= from || v.at[from] < done {
			continue
		}
		if v.has(from, Hidden) { // by an earlier look
			to = from + len(Hidden)
		}
		out.WriteString(s[done:v.at[from]])
		out.WriteString(Hidden)
		done, i = v.at[to], to-1
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// Line returns a text on one line, with Text applied and with everything escaped that a
// terminal would execute.
func Line(s string) string {
	s = Text(s)
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// view is a text with its escapes undone.
type view struct {
	text []byte
	at   []int // where each byte began before, and where the last one ended
}

// maxEscapes is how often a text is assumed to be escaped.
const maxEscapes = 6

// plain undoes %41, \x41, \u0041 and \" until none is left.
func plain(s string) view {
	v := view{text: []byte(s), at: make([]int, len(s)+1)}
	for i := range v.at {
		v.at[i] = i
	}
	for range maxEscapes {
		n := 0
		for i := 0; i < len(v.text); n++ {
			b, size := unescape(v.text[i:])
			v.text[n], v.at[n] = b, v.at[i]
			i += size
		}
		v.at[n] = len(s)
		if n == len(v.text) {
			break
		}
		v.text, v.at = v.text[:n], v.at[:n+1]
	}
	return v
}

// unescape returns the first sign of a text and its size in bytes.
func unescape(s []byte) (sign byte, size int) {
	if s[0] != '%' && s[0] != '\\' { // nearly always
		return s[0], 1
	}
	for _, form := range []struct {
		begins string
		size   int
	}{{"%", 3}, {`\u`, 6}, {`\x`, 4}} {
		if len(s) < form.size || string(s[:len(form.begins)]) != form.begins {
			continue
		}
		if n, err := strconv.ParseUint(string(s[len(form.begins):form.size]), 16, 32); err == nil && n < 0x80 {
			return byte(n), form.size
		}
	}
	if len(s) > 1 && s[0] == '\\' && strings.IndexByte(`"\/'`, s[1]) >= 0 {
		return s[1], 2
	}
	return s[0], 1
}

// size returns the size of a sign in bytes before its escapes were undone.
func (v view) size(i int) int { return v.at[i+1] - v.at[i] }

// secret returns where the secret is that a sign at i announces; a negative
// number if it announces none.
func (v view) secret(i int) (from, to int) {
	switch v.text[i] {
	case '=':
		if Key(v.name(i)) {
			return i + 1, v.until(i+1, v.size(i), "& \t\r\n\"")
		}
	case ':':
		if v.has(i, "://") {
			return v.user(i)
		}
		return v.member(i)
	case ' ', '+':
		if i >= 6 && strings.EqualFold(string(v.text[i-6:i]), "bearer") {
			return i + 1, v.until(i+1, v.size(i), " \t\r\n\"',")
		}
	}
	return -1, -1
}

func (v view) has(i int, text string) bool {
	return len(v.text)-i >= len(text) && string(v.text[i:i+len(text)]) == text
}

// until returns where a value ends: at one of some signs that is escaped no
// more often than one of a size, or with the text.
func (v view) until(from, size int, signs string) int {
	for from < len(v.text) && (v.size(from) > size || strings.IndexByte(signs, v.text[from]) < 0) {
		from++
	}
	return from
}

func (v view) name(i int) string {
	from := i
	for from > 0 && isName(v.text[from-1]) {
		from--
	}
	return string(v.text[from:i])
}

func isName(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-' || b == '.'
}

// member is the value of a member of JSON, whose name is quoted, or of a
// header or a line of YAML, whose colon has a space after it. In a URL a plus
// is a space.
func (v view) member(colon int) (from, to int) {
	before := bytes.TrimRight(v.text[:colon], " +")
	quoted := bytes.HasSuffix(before, []byte{'"'})
	name := v.name(len(bytes.TrimSuffix(before, []byte{'"'})))
	from = len(v.text) - len(bytes.TrimLeft(v.text[colon+1:], " +"))
	switch {
	case from == len(v.text) || !Key(name) || !quoted && (from == colon+1 || !ends(name) || v.beginsErrno(from)):
		return -1, -1
	case v.text[from] == '"' || v.text[from] == '\'':
		return from + 1, v.until(from+1, v.size(from), string(v.text[from]))
	case v.text[from] == '[' || v.text[from] == '{':
		return from, v.closed(from)
	case quoted:
		return from, v.until(from, v.size(colon), ",}] \t\r\n\"")
	}
	return v.line(from, v.size(colon))
}

// beginsErrno reports whether a text begins with what a system says of a file. Then
// the name before it is that of the file: open /etc/nacos-password: is a directory.
func (v view) beginsErrno(i int) bool {
	for _, e := range []syscall.Errno{
		syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.EISDIR, syscall.ENOTDIR, syscall.EMFILE, syscall.ENFILE,
		syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EIO, syscall.ESTALE,
	} {
		if v.has(i, e.Error()) {
			return true
		}
	}
	return false
}

// line is the value of a header or a line of YAML: the text up to a space and, after
// bearer or basic, up to the next.
func (v view) line(from, size int) (_, to int) {
	to = v.until(from, size, " \t\r\n\"")
	if scheme := strings.ToLower(string(v.text[from:to])); (scheme == "bearer" || scheme == "basic") && to < len(v.text) {
		to = v.until(to+1, size, " \t\r\n\"")
	}
	return from, to
}

func (v view) closed(from int) int {
	depth, size := 0, v.size(from)
	for i := from; i < len(v.text); i++ {
		switch v.text[i] {
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth <= 0 {
				return i + 1
			}
		case '"':
			if end := v.until(i+1, v.size(i), `"`); v.size(i) >= size {
				i = end
			}
		}
	}
	return len(v.text)
}

// user is the password of the user that a URL names, or the user where that
// has none. A password may hold slashes and ats; a port is none.
func (v view) user(i int) (from, to int) {
	from, size := i+3, v.size(i)
	end := v.until(from, size, "? \t\r\n\"'<>&")
	authority := v.until(from, size, "/? \t\r\n\"'<>&")
	last := strings.LastIndexByte(string(v.text[from:end]), '@')
	colon := strings.IndexByte(string(v.text[from:authority]), ':')
	if last < 0 || from+last > authority && (colon < 0 || isPort(v.text[from+colon+1:authority])) {
		return -1, -1
	}
	if colon >= 0 && colon < last {
		return from + colon + 1, from + last
	}
	return from, from + last
}

func isPort(b []byte) bool {
	_, err := strconv.ParseUint(string(b), 10, 16)
	return err == nil
}
