package registry

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// An Interest is the set of names that the readers of a source request, in a process
// that uses few services of a large registry. The source defines what a name is. An
// Interest is safe for concurrent use. A nil Interest contains all names.
//
// The source reports each name on its own, or why it cannot report it. So a reader
// can distinguish a service that does not exist from one that was not reported yet.
type Interest struct {
	mu           sync.Mutex
	names        map[string]*requestedName
	changed      chan struct{} // ready after the set changed
	reportedMore chan struct{} // closed when more is reported
}

// requestedName is a name that readers request.
type requestedName struct {
	readers  int   // number of readers
	listed   bool  // Names returned it to the source
	reported bool  // since it was listed
	err      error // why it is unknown now
}

// NewInterest returns an Interest without names.
func NewInterest() *Interest {
	return &Interest{
		names:        make(map[string]*requestedName),
		changed:      make(chan struct{}, 1),
		reportedMore: make(chan struct{}),
	}
}

// Add requests names for one more reader.
func (i *Interest) Add(names ...string) { i.addReaders(names, 1) }

// Drop undoes one Add of each name. A name without readers is forgotten, with all
// that was reported of it.
func (i *Interest) Drop(names ...string) { i.addReaders(names, -1) }

func (i *Interest) addReaders(names []string, readers int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := len(i.names)
	for _, name := range names {
		r := i.names[name]
		switch {
		case r == nil && readers < 0:
			continue
		case r == nil:
			r = &requestedName{}
			i.names[name] = r
		}
		if r.readers += readers; r.readers == 0 {
			delete(i.names, name)
		}
	}
	if len(i.names) == before {
		return
	}
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

// Wants reports whether any of the names is requested.
func (i *Interest) Wants(names ...string) bool {
	if i == nil {
		return true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool { return i.names[name] != nil })
}

// Names returns the requested names, in order; none for a nil Interest. Only the
// source calls it, before it reads. Names that are added later are reported after
// the next call.
func (i *Interest) Names() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, r := range i.names {
		r.listed = true
	}
	return slices.Sorted(maps.Keys(i.names))
}

// Unreported returns the names that Names returned and that were never reported, in
// order; none for a nil Interest.
func (i *Interest) Unreported() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var names []string
	for name, r := range i.names {
		if r.listed && !r.reported {
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

// Report is called by the source after it updated its table. The result of a name is
// nil if the source reported all of it, and otherwise the reason. Names that Names
// did not return are ignored.
func (i *Interest) Report(results map[string]error) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	differs := false
	for name, err := range results {
		r := i.names[name]
		if r == nil || !r.listed {
			continue
		}
		reported := r.reported || err == nil
		differs = differs || reported != r.reported || !sameError(err, r.err)
		r.reported, r.err = reported, err
	}
	if differs {
		close(i.reportedMore)
		i.reportedMore = make(chan struct{})
	}
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}

// Err returns why the first unknown name in order is unknown now; nil if none is.
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

// Answer is the state of some requested names.
type Answer struct {
	Reported bool            // each was reported at least once since it was requested
	Err      error           // why one of them is unknown now; nil if none is
	More     <-chan struct{} // closed when the source reports more, of any name
}

// Answer returns the state of names. What the source reported is in its table if the
// table is read afterwards.
func (i *Interest) Answer(names ...string) Answer {
	if i == nil {
		return Answer{Reported: true}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	a := Answer{Reported: true, More: i.reportedMore}
	for _, name := range names {
		r := i.names[name]
		a.Reported = a.Reported && r != nil && r.reported
		if r != nil && a.Err == nil {
			a.Err = r.err
		}
	}
	return a
}
