// Package naming reads and writes the names of this field: service keys
// (providers:interface:version:group), host addresses (fqdn:port), istio's
// cluster names, host patterns, and the host names of Kubernetes services.
// It is pure, never guesses, and refuses what it cannot print back.
package naming

import (
	"strconv"
	"unicode/utf8"
)

// Error says that a text is not the name it should be. The parsers of this
// package return no other errors.
type Error struct {
	Kind   string // what the text should have been: "service key", "host address", ...
	Text   string // the offending text as Quote shows it
	Reason string
}

// Error returns one line without control characters.
func (e *Error) Error() string { return e.Kind + " " + e.Text + ": " + e.Reason }

// quoteLen is how many bytes of a text Quote shows.
const quoteLen = 80

// Quote returns a text from outside as logs and terminals may show it: in
// double quotes, in ASCII, everything else escaped, and cut to its first 80
// bytes, in which case an ellipsis and the full length follow.
func Quote(s string) string {
	if len(s) <= quoteLen {
		return strconv.QuoteToASCII(s)
	}
	end := quoteLen
	for end > quoteLen-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return strconv.QuoteToASCII(s[:end]) + "... (" + strconv.Itoa(len(s)) + " bytes)"
}

// The kinds of Error.
const (
	kindKey     = "service key"
	kindAddress = "host address"
	kindHost    = "host"
	kindCluster = "cluster name"
	kindPattern = "pattern"
)

func bad(kind, text, reason string) *Error {
	return &Error{Kind: kind, Text: Quote(text), Reason: reason}
}
