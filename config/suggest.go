package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// suggest returns `, did you mean "x"?` for the nearest known word, or the
// list of the known words where none is near.
func suggest(word string, known []string) string {
	if words := naming.Near(word, known, 1); len(words) > 0 {
		return `, did you mean ` + strconv.Quote(words[0]) + `?`
	}
	if len(known) == 0 {
		return ""
	}
	known = slices.Sorted(slices.Values(known))
	return "; known here: " + strings.Join(known, ", ")
}
