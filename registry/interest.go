package registry

import (
	"maps"
	"slices"
	"sync"
)

// An Interest is the set of names that readers of a source want to be told of,
// for a process that needs few services of a large registry. What a name is,
// the source says. It may be used from any goroutine; a nil Interest wants
// everything.
//
// A wish is numbered, so that a reader can tell what does not exist from what
// has not been told yet.
type Interest struct {
	mu      sync.Mutex
	names   map[string]int // by how many it is wanted
	version int            // of the set
	told    int            // the version up to which the source told of everything
	changed chan struct{}  // ready after the set changed
	answer  chan struct{}  // closed when told rises
}

// NewInterest returns an interest in nothing.
func NewInterest() *Interest {
	return &Interest{names: make(map[string]int), changed: make(chan struct{}, 1), answer: make(chan struct{})}
}

// Add wants names, once more each, and returns the number of the wish for Await.
func (i *Interest) Add(names ...string) int {
	return i.change(+1, names)
}

// Drop takes back one wish for each name.
func (i *Interest) Drop(names ...string) {
	i.change(-1, names)
}

func (i *Interest) change(by int, names []string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	differs := false
	for _, name := range names {
		before := i.names[name]
		now := max(0, before+by)
		if now == 0 {
			delete(i.names, name)
		} else {
			i.names[name] = now
		}
		differs = differs || (before == 0) != (now == 0)
	}
	if !differs {
		return i.version
	}
	i.version++
	select {
	case i.changed <- struct{}{}:
	default:
	}
	return i.version
}

// Wants reports whether any of the names is wanted.
func (i *Interest) Wants(names ...string) bool {
	if i == nil {
		return true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, name := range names {
		if i.names[name] > 0 {
			return true
		}
	}
	return false
}

// Names returns what is wanted, in order; none for a nil Interest.
func (i *Interest) Names() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Sorted(maps.Keys(i.names))
}

// Changed is ready after the set changed; never for a nil Interest.
func (i *Interest) Changed() <-chan struct{} {
	if i == nil {
		return nil
	}
	return i.changed
}

// Version returns the number of the set as it is. A source asks for it before
// it looks at the names.
func (i *Interest) Version() int {
	if i == nil {
		return 0
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.version
}

// Told is the source's word that it has told of everything that was wanted as
// of a version.
func (i *Interest) Told(version int) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if version <= i.told {
		return
	}
	i.told = version
	close(i.answer)
	i.answer = make(chan struct{})
}

// Await reports whether the source has told of everything that was wanted as of
// a version; where it has not, more is closed when it has told of more.
func (i *Interest) Await(version int) (told bool, more <-chan struct{}) {
	if i == nil {
		return true, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.told >= version, i.answer
}
