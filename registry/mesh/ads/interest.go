package ads

import (
	"maps"
	"slices"
)

// interest is what is wanted of one type, whatever its resources are in Go. Only
// Run's goroutine touches it.
type interest struct {
	url     string
	want    map[string]int      // how many subscriptions want a name
	changed map[string]struct{} // names that sessions have to look at again
	// leaving are names that nobody wants any more and that the server may still
	// serve: what is known of them stays and is kept current until it was told.
	leaving map[string]struct{}
	release func(name string) // forgets what is known of a name
	version string            // last accepted
	held    int               // resources held
	unknown int               // names asked for and not answered
}

func newInterest(url string) *interest {
	return &interest{url: url, want: map[string]int{}, changed: map[string]struct{}{}, leaving: map[string]struct{}{}}
}

// wants says whether what is reported of a name counts.
func (l *interest) wants(name string) bool {
	return l.want[name] > 0 || l.want[Wildcard] > 0 || has(l.leaving, name) || has(l.leaving, Wildcard)
}

// idle says whether nothing that is told counts.
func (l *interest) idle() bool { return len(l.want) == 0 && len(l.leaving) == 0 }

func has(set map[string]struct{}, name string) bool {
	_, ok := set[name]
	return ok
}

// releaseUnused forgets what nobody wants once no session asks for it any more. Had it
// been forgotten before, a name given up and wanted again at once, of which the
// server then hears nothing, would never be told.
func (l *interest) releaseUnused(asked []map[string]struct{}) {
	isAsked := func(name string) bool {
		return slices.ContainsFunc(asked, func(names map[string]struct{}) bool { return has(names, name) })
	}
	for name := range l.leaving {
		switch {
		case l.want[name] > 0:
			delete(l.leaving, name)
		case isAsked(name), l.want[Wildcard] == 0 && isAsked(Wildcard):
		default:
			delete(l.leaving, name)
			l.release(name)
		}
	}
}

// add wants a name once more.
func (l *interest) add(name string) {
	l.want[name]++
	if l.want[name] == 1 {
		l.changed[name] = struct{}{}
	}
}

// drop wants a name once less and says whether nobody wants it any more.
func (l *interest) drop(name string) bool {
	l.want[name]--
	if l.want[name] > 0 {
		return false
	}
	delete(l.want, name)
	l.changed[name] = struct{}{}
	l.leaving[name] = struct{}{}
	return true
}

// names returns what is wanted, sorted.
func (l *interest) names() []string { return slices.Sorted(maps.Keys(l.want)) }
