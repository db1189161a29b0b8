package guarantees

// Shrink returns a shortest part of a list that still fails: without any one
// of its elements it does not. It calls fails O(n²) times at worst; the list
// itself has to fail, and stays as it is.
func Shrink[T any](list []T, fails func([]T) bool) []T {
	for size := len(list); size > 0; size /= 2 {
		for from := 0; from < len(list); {
			if rest := without(list, from, min(from+size, len(list))); fails(rest) {
				list = rest
				continue // the next ones stand where these did
			}
			from += size
		}
	}
	return again(list, fails)
}

// again takes single elements out until none can go: one that was needed may
// not be after others went.
func again[T any](list []T, fails func([]T) bool) []T {
	for from := range list {
		if rest := without(list, from, from+1); fails(rest) {
			return again(rest, fails)
		}
	}
	return list
}

func without[T any](list []T, from, to int) []T {
	rest := make([]T, 0, len(list)-(to-from))
	return append(append(rest, list[:from]...), list[to:]...)
}
