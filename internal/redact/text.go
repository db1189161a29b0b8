package redact

import "strings"

// Text returns a text in which the secrets of these forms are hidden, however
// often it was quoted:
//
//	token=s3cret&…            a parameter of a URL
//	token%3Ds3cret%26…        the same in the name of a node
//	"token":"s3cret"          JSON, and \"token\":\"s3cret\" within JSON or quotes
//	dubbo://user:s3cret@host  a URL with a user, and the same in the name of a node
func Text(s string) string {
	if !strings.ContainsAny(s, "=:%") {
		return s
	}
	var out strings.Builder
	done := 0
	for i := 0; i < len(s); i++ {
		from, to := secret(s, i)
		if from < 0 || from < done || to <= from {
			continue
		}
		out.WriteString(s[done:from])
		out.WriteString(Hidden)
		done, i = to, to-1
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// secret returns where the secret is that a separator at i begins; a negative
// number where there is none.
func secret(s string, i int) (from, to int) {
	switch rest := s[i:]; {
	case rest[0] == '=':
		return parameter(s, i, i+1, raw)
	case rest[0] == ':' && strings.HasPrefix(rest, "://"):
		return user(s, i+3, raw, ":", "@")
	case rest[0] == ':':
		return member(s, i)
	case has(rest, "%3d"):
		return parameter(s, i, i+3, escaped)
	case has(rest, "%3a%2f%2f"):
		return user(s, i+9, escaped, "%3a", "%40")
	}
	return -1, -1
}

// has reports whether a text begins so, whatever the case of the prefix.
func has(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// A form says where a value in it ends.
type form func(rest string) bool

func raw(rest string) bool { return strings.IndexByte("&;, \t\r\n\"'\\)]}", rest[0]) >= 0 }

func escaped(rest string) bool {
	return raw(rest) || rest[0] == '/' || has(rest, "%26") || has(rest, "%3b") || has(rest, "%2c")
}

// parameter is a value between its separator and its end.
func parameter(s string, separator, from int, ends form) (int, int) {
	if !Key(nameBefore(s, separator)) {
		return -1, -1
	}
	to := from
	for to < len(s) && !ends(s[to:]) {
		to++
	}
	return from, to
}

// nameBefore returns the name that ends at i. What an escaped sign leaves of
// itself at its beginning is none of it.
func nameBefore(s string, i int) string {
	at := i
	for at > 0 && isName(s[at-1]) {
		at--
	}
	if at > 0 && s[at-1] == '%' {
		at = min(at+2, i)
	}
	return s[at:i]
}

func isName(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-' || b == '.'
}

// member is the value of a member of a JSON object.
func member(s string, colon int) (int, int) {
	name := strings.TrimRight(s[:colon], " ")
	if !strings.HasSuffix(name, `"`) {
		return -1, -1
	}
	name = strings.TrimRight(name[:len(name)-1], `\`)
	if !Key(nameBefore(name, len(name))) {
		return -1, -1
	}
	value := strings.TrimLeft(s[colon+1:], " ")
	level := slashes(value)
	if !strings.HasPrefix(value[level:], `"`) {
		return -1, -1
	}
	return quoted(s, len(s)-len(value)+level+1, level)
}

// quoted is a value up to the quote that ends it: one within it has more
// backslashes than the one that began it.
func quoted(s string, from, level int) (int, int) {
	for to := from; to < len(s); to++ {
		if n := slashes(s[to:]); n > 0 || s[to] == '"' {
			if to+n < len(s) && s[to+n] == '"' && n <= level {
				return from, to
			}
			to += n
		}
	}
	return from, len(s)
}

// slashes counts the backslashes that a text begins with.
func slashes(s string) int { return len(s) - len(strings.TrimLeft(s, `\`)) }

// user is the password of the user that the authority of a URL names.
func user(s string, from int, ends form, colon, at string) (int, int) {
	password := -1
	for i := from; i < len(s) && s[i] != '/' && s[i] != '?' && !ends(s[i:]) && !has(s[i:], "%2f") && !has(s[i:], "%3f"); i++ {
		switch {
		case password < 0 && has(s[i:], colon):
			password = i + len(colon)
		case password >= 0 && has(s[i:], at):
			return password, i
		}
	}
	return -1, -1
}
