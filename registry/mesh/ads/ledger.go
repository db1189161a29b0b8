package ads

import (
	"maps"
	"slices"
)

// ledger is what is wanted of one type, whatever its resources are in Go. Only
// Run's goroutine touches it.
type ledger struct {
	url     string
	want    map[string]int      // how many subscriptions want a name
	changed map[string]struct{} // names that sessions have to look at again
	version string              // last accepted
	held    int                 // resources held
	unknown int                 // names asked for and not answered
}

func newLedger(url string) *ledger {
	return &ledger{url: url, want: map[string]int{}, changed: map[string]struct{}{}}
}

func (l *ledger) wants(name string) bool { return l.want[name] > 0 || l.want[Wildcard] > 0 }

// add wants a name once more.
func (l *ledger) add(name string) {
	l.want[name]++
	if l.want[name] == 1 {
		l.changed[name] = struct{}{}
	}
}

// drop wants a name once less and says whether nobody wants it any more.
func (l *ledger) drop(name string) bool {
	l.want[name]--
	if l.want[name] > 0 {
		return false
	}
	delete(l.want, name)
	l.changed[name] = struct{}{}
	return true
}

// names returns what is wanted, sorted.
func (l *ledger) names() []string { return slices.Sorted(maps.Keys(l.want)) }
