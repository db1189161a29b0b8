// Package naming reads and writes the names of this field: service keys
// (providers:interface:version:group), host addresses (fqdn:port), istio's
// cluster names, host patterns, and the host names of Kubernetes services.
// It is pure, never guesses, and refuses what it cannot print back.
package naming

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
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

// Near returns up to n of the known words that are near to a word, the nearest
// first: those that are equal but for the case of letters, and those at a
// Levenshtein distance of no more than a third of its bytes and one.
func Near(word string, known []string, n int) []string {
	type candidate struct {
		word     string
		distance int
	}
	var all []candidate
	for _, k := range known {
		d := 0
		if !strings.EqualFold(k, word) {
			d = Distance(word, k)
		}
		if d < len(word)/3+2 {
			all = append(all, candidate{k, d})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	var words []string
	for _, c := range all[:min(n, len(all))] {
		words = append(words, c.word)
	}
	return words
}

// Distance is the Levenshtein distance of two words.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
