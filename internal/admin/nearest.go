package admin

import (
	"cmp"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// alias is a text that somebody may have meant, and the name of what it means.
type alias struct{ text, name string }

// suggested is how many names are suggested at most.
const suggested = 3

// nearest returns the names whose texts are closest to what was asked for: those
// that have it in them, and those that a few slips of the keyboard lead to.
func nearest(asked string, all []alias) []string {
	type near struct {
		name     string
		distance int
	}
	most, best := max(2, len(asked)/4), make(map[string]int)
	for _, a := range all {
		d := most + 1
		switch {
		case asked != "" && strings.Contains(a.text, asked):
			d = 1
		case max(len(a.text), len(asked))-min(len(a.text), len(asked)) <= most:
			d = naming.Distance(a.text, asked)
		}
		if before, known := best[a.name]; d <= most && (!known || d < before) {
			best[a.name] = d
		}
	}
	list := make([]near, 0, len(best))
	for name, d := range best {
		list = append(list, near{name, d})
	}
	slices.SortFunc(list, func(a, b near) int { return cmp.Or(a.distance-b.distance, cmp.Compare(a.name, b.name)) })
	var names []string
	for _, n := range list[:min(len(list), suggested)] {
		names = append(names, n.name)
	}
	return names
}

// meant asks whether one of some names was meant; empty where there are none.
func meant(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}
