package naming

import (
	"cmp"
	"slices"
	"strings"
)

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
