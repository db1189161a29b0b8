package config

import (
	"slices"
	"strconv"
	"strings"
)

// suggest returns `, did you mean "x"?` for the nearest known word, or the
// list of the known words where none is near.
func suggest(word string, known []string) string {
	best, distance := "", len(word)/3+2
	for _, k := range known {
		if strings.EqualFold(k, word) {
			best = k
			break
		}
		if d := edits(word, k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return `, did you mean ` + strconv.Quote(best) + `?`
	}
	if len(known) == 0 {
		return ""
	}
	known = slices.Sorted(slices.Values(known))
	return "; known here: " + strings.Join(known, ", ")
}

// edits is the Levenshtein distance of two words.
func edits(a, b string) int {
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
