package metadata

import (
	"encoding/json"
	"strings"
)

// JSON writes strings, numbers and what is made of them as every reader takes it,
// without HTML escapes.
func JSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // such values have no other
	}
	return strings.TrimSuffix(b.String(), "\n")
}
