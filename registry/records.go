package registry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// MergeRecords returns the records of a kind after texts were stored there, for a
// Recorder that keeps all of a kind as one JSON object. A text that would make this
// object longer than limit is refused, and what was kept under its name stays.
func MergeRecords(kept, texts map[string]string, limit int) (merged map[string]string, refused Refused) {
	merged, refused = make(map[string]string, len(kept)+len(texts)), make(Refused)
	maps.Copy(merged, kept)
	size := 0
	for name, text := range kept {
		size += recordSize(name, text)
	}
	grows := func(name string) int { return recordSize(name, texts[name]) - recordSize(name, kept[name]) }
	for _, name := range slices.SortedFunc(maps.Keys(texts), func(a, b string) int { // what makes room first
		return cmp.Or(cmp.Compare(grows(a), grows(b)), cmp.Compare(a, b))
	}) {
		by := grows(name)
		if by > 0 && size+by > limit {
			refused[name] = fmt.Errorf("%w: all records of a kind would have %d bytes, the limit is %d", ErrRefused, size+by, limit)
			continue
		}
		size += by
		if merged[name] = texts[name]; texts[name] == "" {
			delete(merged, name)
		}
	}
	return merged, refused
}

// recordSize returns the bytes of a record in a JSON object; one that is empty is not
// there.
func recordSize(name, text string) int {
	if text == "" {
		return 0
	}
	member, err := json.Marshal(map[string]string{name: text})
	if err != nil {
		panic(err) // of texts alone
	}
	return len(member)
}
