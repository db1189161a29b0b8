package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// suggest returns `, did you mean "x"?` for the nearest known word or those that
// have it in them, or the list of the known words where there are none.
func suggest(word string, known []string) string {
	if words := naming.Near(word, known, 1); len(words) > 0 {
		return `, did you mean ` + strconv.Quote(words[0]) + `?`
	}
	if len(known) == 0 {
		return ""
	}
	known = slices.Sorted(slices.Values(known))
	const least = 3 // letters, of which fewer are in many words
	if words := slices.DeleteFunc(slices.Clone(known), func(k string) bool {
		return len(word) < least || !strings.Contains(strings.ToLower(k), strings.ToLower(word))
	}); len(words) > 0 {
		return `, did you mean "` + strings.Join(words, `" or "`) + `"?`
	}
	return "; known here: " + strings.Join(known, ", ")
}
