package registry

import "fmt"

// Counted returns a number with its noun, as in 1 entry and 2 entries. What else in a
// sentence depends on the number is a part of the noun.
func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
