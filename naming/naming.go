// Package naming parses and formats service keys (providers:interface:version:group),
// host addresses (fqdn:port), Istio's cluster names, patterns of hosts, and hosts of
// Kubernetes and of imported services. It is pure, and refuses names whose parsed form it
// could not format again.
package naming

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is the error of all parsers of this package.
type Error struct {
	Kind   string // of the name: "service key", "host address", ...
	Text   string // the parsed text, quoted by Quote
	Reason string
}

// Error returns one line without control characters.
func (e *Error) Error() string { return e.Kind + " " + e.Text + ": " + e.Reason }

// quoteLen is the number of bytes of a text that Quote shows.
const quoteLen = 80

// Quote returns an untrusted text for logs and terminals: in double quotes, with all
// non-ASCII characters escaped. Of a text of more than 80 bytes it returns the first 80
// bytes, an ellipsis and the length.
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

// Near returns up to n known names that are similar to a name, the most similar first. A
// similar name differs in case, or has a Levenshtein distance of up to a third of the
// name's length plus one.
func Near(name string, known []string, n int) []string {
	type candidate struct {
		name     string
		distance int
	}
	var all []candidate
	for _, k := range known {
		d := 0
		if !strings.EqualFold(k, name) {
			d = Distance(name, k)
		}
		if d < len(name)/3+2 {
			all = append(all, candidate{k, d})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	var names []string
	for _, c := range all[:min(n, len(all))] {
		names = append(names, c.name)
	}
	return names
}

// Distance returns the Levenshtein distance of two texts.
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
