package plan

import (
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A pair is the key and the value of an entry. Values are long, and often
// begin as their key does and continue as the others of their group: so only the
// rest is kept, in one string for all that have the same. It is comparable;
// equal entries are equal pairs.
type pair struct {
	key  string
	rest string // of the value
	from int    // where it begins; before that the value is as the key
}

func newPair(key, value string) pair {
	from, most := 0, min(len(key), len(value))
	if strings.HasPrefix(value, key) {
		from = len(key)
	}
	for from < most && key[from] == value[from] {
		from++
	}
	return pair{key: key, rest: value[from:], from: from}
}

func (a pair) value() string { return a.key[:a.from] + a.rest }

// is reports whether the pair is that of an entry.
func (a pair) is(e registry.Entry) bool {
	return a.key == e.Key && len(e.Value) == a.from+len(a.rest) && e.Value[:a.from] == a.key[:a.from] && e.Value[a.from:] == a.rest
}

func (a pair) compare(b pair) int {
	if c := strings.Compare(a.key, b.key); c != 0 {
		return c
	}
	if a.from == b.from {
		return strings.Compare(a.rest, b.rest)
	}
	return strings.Compare(a.value(), b.value())
}

// A pool makes one string of equal ones, as far as they come close to each
// other: a group of thousands may have as many that differ.
type pool struct {
	recent [8]string
	next   int
}

func (p *pool) share(s string) string {
	for _, r := range p.recent {
		if r == s {
			return r
		}
	}
	p.recent[p.next%len(p.recent)] = s
	p.next++
	return s
}
