package ads

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Subscription is a set of names of one type that somebody wants to hear of.
// Its methods may be called from any goroutine and from inside handlers; they
// never wait for one.
type Subscription[T any] struct {
	client *Client
	kind   Kind[T]
	handle func(Event[T])
	done   chan struct{}

	mu     sync.Mutex // guards what is in this block
	closed bool
	busy   bool // a call of handle is under way

	// Only Run's goroutine touches what follows.
	id     int
	cached *cachedTypeOf[T]
	names  map[string]struct{}
}

// Subscribe adds a subscription that asks for nothing yet. All handlers of a
// client are called one at a time, in order, from Run's goroutine; a slow one
// holds the stream. The Decode and Full of the first subscription to a URL count
// for all of it, so that all of them must be of one T: it panics in Run if they
// are not.
func Subscribe[T any](c *Client, k Kind[T], handle func(Event[T])) *Subscription[T] {
	s := &Subscription[T]{
		client: c, kind: k, handle: handle,
		done: make(chan struct{}), names: map[string]struct{}{},
	}
	s.post(func(e *engine) { s.join(e) })
	return s
}

func (s *Subscription[T]) post(do func(*engine)) { s.client.inbox.post(do) }

// join finds the cached type of the subscription, or makes it.
func (s *Subscription[T]) join(e *engine) {
	b := e.typeState(s.kind.URL, func(l *interest) cachedType { return newCachedType(s.kind, l, &e.epoch, &e.connection) })
	t, ok := b.cached.(*cachedTypeOf[T])
	if !ok {
		panic(fmt.Sprintf("ads: %s: subscribed to as two Go types", s.kind.URL))
	}
	e.subscriptions++
	s.id, s.cached = e.subscriptions, t
}

// Watch adds names; Wildcard is all. What is known of them already is reported at
// once, without asking the server again.
func (s *Subscription[T]) Watch(names ...string) {
	names = slices.Clone(names)
	s.post(func(*engine) { s.watch(names) })
}

// Unwatch takes names back. What is on its way may still be told.
func (s *Subscription[T]) Unwatch(names ...string) {
	names = slices.Clone(names)
	s.post(func(*engine) { s.unwatch(names) })
}

// Set makes names the whole set.
func (s *Subscription[T]) Set(names []string) {
	want := make(map[string]struct{}, len(names))
	for _, name := range names {
		want[name] = struct{}{}
	}
	s.post(func(*engine) {
		var gone []string
		for name := range s.names {
			if _, ok := want[name]; !ok {
				gone = append(gone, name)
			}
		}
		s.watch(slices.Sorted(maps.Keys(want)))
		s.unwatch(gone)
	})
}

// Close withdraws everything. No call of the handler begins after it returned;
// one that is under way may still be: see Done. It may be repeated.
func (s *Subscription[T]) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if !s.busy {
		close(s.done)
	}
	s.post(func(*engine) { s.unwatch(slices.Collect(maps.Keys(s.names))) })
}

// Done is closed when the subscription was closed and no call of its handler is
// under way.
func (s *Subscription[T]) Done() <-chan struct{} { return s.done }

// deliver calls the handler unless the subscription was closed.
func (s *Subscription[T]) deliver(e Event[T]) {
	if !s.begin() {
		return
	}
	defer s.end()
	s.handle(e)
}

func (s *Subscription[T]) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = !s.closed
	return s.busy
}

func (s *Subscription[T]) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	if s.closed {
		close(s.done)
	}
}

func (s *Subscription[T]) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Subscription[T]) watch(names []string) {
	if s.isClosed() {
		return
	}
	var fresh []string
	for _, name := range names {
		if _, ok := s.names[name]; ok {
			continue
		}
		s.names[name] = struct{}{}
		s.cached.join(s, name)
		fresh = append(fresh, name)
	}
	s.cached.replay(s, fresh)
}

func (s *Subscription[T]) unwatch(names []string) {
	for _, name := range names {
		if _, ok := s.names[name]; ok {
			delete(s.names, name)
			s.cached.leave(s, name)
		}
	}
}

// join notes that a subscription wants a name.
func (t *cachedTypeOf[T]) join(s *Subscription[T], name string) {
	t.ledger.add(name)
	if name == Wildcard {
		t.all[s] = struct{}{}
		return
	}
	t.named[name] = append(t.named[name], s)
}

// leave notes that a subscription wants a name no more. What nobody wants leaves,
// and with the wildcard all that only it covered.
func (t *cachedTypeOf[T]) leave(s *Subscription[T], name string) {
	if name == Wildcard {
		delete(t.all, s)
	} else if left := slices.DeleteFunc(t.named[name], func(o *Subscription[T]) bool { return o == s }); len(left) > 0 {
		t.named[name] = left
	} else {
		delete(t.named, name)
	}
	if !t.ledger.drop(name) || name != Wildcard {
		return
	}
	for known := range t.records {
		if t.ledger.want[known] == 0 {
			t.ledger.leaving[known] = struct{}{}
		}
	}
}

// replay tells a subscription what is known of names, one event per stream that
// told it.
func (t *cachedTypeOf[T]) replay(s *Subscription[T], names []string) {
	events := map[int]*eventBuilder[T]{}
	at := func(epoch int) *Event[T] {
		if events[epoch] == nil {
			events[epoch] = t.newEvents(epoch)
		}
		return events[epoch].event(s)
	}
	if slices.Contains(names, Wildcard) {
		names = slices.Collect(maps.Keys(t.records))
		if t.complete != 0 && t.complete == *t.epoch {
			at(t.complete).Complete = true
		}
	}
	for _, name := range names {
		r := t.records[name]
		if r == nil {
			continue
		}
		e := at(r.epoch)
		if r.held {
			e.Changed = append(e.Changed, resource(name, r))
		}
		if r.absent {
			e.Removed = append(e.Removed, name)
		}
		if r.unknown != nil {
			put(&e.Unknown, name, r.unknown)
		}
		if r.invalid != nil {
			put(&e.Invalid, name, r.invalid)
		}
	}
	for _, epoch := range slices.Sorted(maps.Keys(events)) {
		events[epoch].deliver()
	}
}
