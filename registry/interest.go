package registry

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// An Interest is the set of names that readers of a source want to be notified of,
// for a process that needs few services of a large registry. What a name is,
// the source says. It may be used from any goroutine; a nil Interest wants
// everything.
//
// What is known of one name never depends on another: the source says of each
// by itself that it reported it, or why it cannot, so that a reader can
// distinguish what does not exist from what has not been reported yet.
type Interest struct {
	mu      sync.Mutex
	names   map[string]*wish
	changed chan struct{} // ready after the set changed
	more    chan struct{} // closed when more is reported
}

// wish is a name that readers asked for.
type wish struct {
	by       int   // how many readers ask for it
	seen     bool  // the source knows that it is asked for
	reported bool  // the source reported it since then
	err      error // why it cannot be known now
}

// NewInterest returns an interest in nothing.
func NewInterest() *Interest {
	return &Interest{names: make(map[string]*wish), changed: make(chan struct{}, 1), more: make(chan struct{})}
}

// Add asks for names, once more each.
func (i *Interest) Add(names ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	differs := false
	for _, name := range names {
		if i.names[name] == nil {
			i.names[name] = &wish{}
			differs = true
		}
		i.names[name].by++
	}
	if differs {
		i.signal()
	}
}

// Drop takes back one Add of each name. What was reported of a name that nobody
// asks for any more is forgotten.
func (i *Interest) Drop(names ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	differs := false
	for _, name := range names {
		w := i.names[name]
		if w == nil {
			continue
		}
		if w.by--; w.by == 0 {
			delete(i.names, name)
			differs = true
		}
	}
	if differs {
		i.signal()
	}
}

func (i *Interest) signal() {
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

// Wants reports whether any of the names is asked for.
func (i *Interest) Wants(names ...string) bool {
	if i == nil {
		return true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool { return i.names[name] != nil })
}

// Names returns the names that are asked for, in order; none for a nil Interest.
// The source alone calls it, before it looks: a name that is added later is reported
// only after the next call.
func (i *Interest) Names() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, w := range i.names {
		w.seen = true
	}
	return slices.Sorted(maps.Keys(i.names))
}

// Unreported returns those of Names that were never reported, in order; none for a
// nil Interest.
func (i *Interest) Unreported() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var names []string
	for name, w := range i.names {
		if w.seen && !w.reported {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Changed is ready after the set changed; never for a nil Interest.
func (i *Interest) Changed() <-chan struct{} {
	if i == nil {
		return nil
	}
	return i.changed
}

// Report is called by the source, after its table shows what it found: with nil
// for a name of which it reported everything, else with why it cannot. A name
// that is not among Names is left out.
func (i *Interest) Report(answers map[string]error) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	differs := false
	for name, err := range answers {
		w := i.names[name]
		if w == nil || !w.seen {
			continue
		}
		reported := w.reported || err == nil
		differs = differs || reported != w.reported || !sameError(err, w.err)
		w.reported, w.err = reported, err
	}
	if differs {
		close(i.more)
		i.more = make(chan struct{})
	}
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}

// Err returns why a name that is asked for cannot be known now, the first in order; nil
// where all can.
func (i *Interest) Err() error {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(i.names)) {
		if err := i.names[name].err; err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Answer is what a source said of some names.
type Answer struct {
	Reported bool            // each was reported at least once since it was asked for
	Err      error           // why one of them cannot be known now; nil where all can
	More     <-chan struct{} // closed when the source says more, of any name
}

// Answer returns what the source said of names. A table that is read after it
// shows what was reported; one that was read before it may not.
func (i *Interest) Answer(names ...string) Answer {
	if i == nil {
		return Answer{Reported: true}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	a := Answer{Reported: true, More: i.more}
	for _, name := range names {
		w := i.names[name]
		a.Reported = a.Reported && w != nil && w.reported
		if w != nil && a.Err == nil {
			a.Err = w.err
		}
	}
	return a
}
