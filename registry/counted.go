package registry

import "fmt"

// Counted returns a number with its noun, as in 1 entry and 2 entries. Other words
// that depend on the number are part of the noun, as in "entry is" and "entries are".
func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
