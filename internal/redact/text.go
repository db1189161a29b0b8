package redact

import (
	"bytes"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// Text returns a text in which secrets of the following forms are hidden, regardless of
// how often names, signs and values were escaped:
//
//	token=s3cret&…            a parameter of a URL
//	"token":"s3cret"          a member of a JSON object; also lists, objects and bare values
//	Authorization: Bearer …   a header, or a line of YAML
//	dubbo://user:s3cret@host  a URL with a user
//
// It searches the unescaped text, and hides the corresponding part of the original. A
// value ends at a sign that is escaped no more often than the sign before the value: a
// sign that is escaped more often is part of the value.
func Text(s string) string {
	if !strings.ContainsAny(s, "=:%") && !strings.Contains(s, "earer") {
		return s
	}
	u := unescapeAll(s)
	var out strings.Builder
	done := 0 // bytes of s
	for i := 0; i < len(u.text); i++ {
		from, to := u.secretAfter(i)
		if from < 0 || to <= from || u.offsets[from] < done {
			continue
		}
		if u.hasAt(from, Hidden) { // it was already redacted
			to = from + len(Hidden)
		}
		out.WriteString(s[done:u.offsets[from]])
		out.WriteString(Hidden)
		done, i = u.offsets[to], to-1
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// Line returns a text on one line, with Text applied and with control characters escaped,
// which a terminal would execute.
func Line(s string) string {
	s = Text(s)
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// unescaped is a text without escapes.
type unescaped struct {
	text    []byte
	offsets []int // of each byte in the original text, and the end of the last byte
}

// maxEscapes is how often a text may have been escaped.
const maxEscapes = 6

// unescapeAll undoes %41, \x41, \u0041 and \" until none remains.
func unescapeAll(s string) unescaped {
	u := unescaped{text: []byte(s), offsets: make([]int, len(s)+1)}
	for i := range u.offsets {
		u.offsets[i] = i
	}
	for range maxEscapes {
		n := 0
		for i := 0; i < len(u.text); n++ {
			b, size := unescape(u.text[i:])
			u.text[n], u.offsets[n] = b, u.offsets[i]
			i += size
		}
		u.offsets[n] = len(s)
		if n == len(u.text) {
			break
		}
		u.text, u.offsets = u.text[:n], u.offsets[:n+1]
	}
	return u
}

// unescape returns the first sign of a text and the number of bytes that encode it.
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

// size returns the number of bytes that encode a sign in the original text.
func (u unescaped) size(i int) int { return u.offsets[i+1] - u.offsets[i] }

// secretAfter returns the range of the secret after the sign at i. The range is negative if
// no secret follows.
func (u unescaped) secretAfter(i int) (from, to int) {
	switch u.text[i] {
	case '=':
		if Key(u.nameBefore(i)) {
			return i + 1, u.endOfValue(i+1, u.size(i), "& \t\r\n\"")
		}
	case ':':
		if u.hasAt(i, "://") {
			return u.userOfURL(i)
		}
		return u.memberValue(i)
	case ' ', '+':
		if i >= 6 && strings.EqualFold(string(u.text[i-6:i]), "bearer") {
			return i + 1, u.endOfValue(i+1, u.size(i), " \t\r\n\"',")
		}
	}
	return -1, -1
}

func (u unescaped) hasAt(i int, text string) bool {
	return len(u.text)-i >= len(text) && string(u.text[i:i+len(text)]) == text
}

// endOfValue returns the end of a value: the first of the given signs whose encoding is at
// most size bytes long, or the end of the text.
func (u unescaped) endOfValue(from, size int, signs string) int {
	for from < len(u.text) && (u.size(from) > size || strings.IndexByte(signs, u.text[from]) < 0) {
		from++
	}
	return from
}

// nameBefore returns the name that ends before i.
func (u unescaped) nameBefore(i int) string {
	from := i
	for from > 0 && isName(u.text[from-1]) {
		from--
	}
	return string(u.text[from:i])
}

func isName(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-' || b == '.'
}

// memberValue returns the range of the secret value after a colon. The name of a member of
// a JSON object is quoted. In a header or a line of YAML a space follows the colon. In a
// URL a plus is a space.
func (u unescaped) memberValue(colon int) (from, to int) {
	before := bytes.TrimRight(u.text[:colon], " +")
	quoted := bytes.HasSuffix(before, []byte{'"'})
	name := u.nameBefore(len(bytes.TrimSuffix(before, []byte{'"'})))
	from = len(u.text) - len(bytes.TrimLeft(u.text[colon+1:], " +"))
	switch {
	case from == len(u.text) || !Key(name) || !quoted && (from == colon+1 || !endsSecret(name) || u.hasErrnoAt(from)):
		return -1, -1
	case u.text[from] == '"' || u.text[from] == '\'':
		return from + 1, u.endOfValue(from+1, u.size(from), string(u.text[from]))
	case u.text[from] == '[' || u.text[from] == '{':
		return from, u.endOfBrackets(from)
	case quoted:
		return from, u.endOfValue(from, u.size(colon), ",}] \t\r\n\"")
	}
	return u.lineValue(from, u.size(colon))
}

// hasErrnoAt reports whether the text at i is the error of a system call. The name before
// it is then that of a file, as in "open /etc/nacos-password: is a directory".
func (u unescaped) hasErrnoAt(i int) bool {
	for _, e := range []syscall.Errno{
		syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.EISDIR, syscall.ENOTDIR, syscall.EMFILE, syscall.ENFILE,
		syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EIO, syscall.ESTALE,
	} {
		if u.hasAt(i, e.Error()) {
			return true
		}
	}
	return false
}

// lineValue returns the range of the value of a header or a line of YAML: the text up to
// the next space or, after bearer or basic, up to the second.
func (u unescaped) lineValue(from, size int) (_, to int) {
	to = u.endOfValue(from, size, " \t\r\n\"")
	if scheme := strings.ToLower(string(u.text[from:to])); (scheme == "bearer" || scheme == "basic") && to < len(u.text) {
		to = u.endOfValue(to+1, size, " \t\r\n\"")
	}
	return from, to
}

// endOfBrackets returns the end of a list or an object.
func (u unescaped) endOfBrackets(from int) int {
	depth, size := 0, u.size(from)
	for i := from; i < len(u.text); i++ {
		switch u.text[i] {
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth <= 0 {
				return i + 1
			}
		case '"':
			if end := u.endOfValue(i+1, u.size(i), `"`); u.size(i) >= size {
				i = end
			}
		}
	}
	return len(u.text)
}

// userOfURL returns the range of the password in a URL, or of the user if there is no
// password. A password may contain slashes and at signs; a port is not a password.
func (u unescaped) userOfURL(i int) (from, to int) {
	from, size := i+3, u.size(i)
	end := u.endOfValue(from, size, "? \t\r\n\"'<>&")
	authority := u.endOfValue(from, size, "/? \t\r\n\"'<>&")
	last := strings.LastIndexByte(string(u.text[from:end]), '@')
	colon := strings.IndexByte(string(u.text[from:authority]), ':')
	if last < 0 || from+last > authority && (colon < 0 || isPort(u.text[from+colon+1:authority])) {
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
