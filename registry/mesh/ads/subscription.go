package ads

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Wildcard is the name that stands for everything the server has of a type.
const Wildcard = "*"

// Kind is a resource type and how to decode it.
type Kind[T any] struct {
	// URL is the type URL, type.googleapis.com/envoy.config.cluster.v3.Cluster.
	URL string
	// Decode decodes one resource of type URL. With an error it still returns the
	// name if that was readable. It is called for new bytes only, and concurrently.
	// Subscribers share the value, which must not refer to data.
	Decode func(data []byte) (name string, value T, err error)
	// Full says that a state-of-the-world response holds all resources, so that
	// a missing one is gone: clusters and listeners.
	Full bool
}

// Resource is one resource as it was last reported.
type Resource[T any] struct {
	Name    string
	Version string // of the server; may be empty
	Value   T
}

// Event is what one response, one timeout or one subscription changed, for one
// subscription. Lists are sorted by name; a name is in at most one of Changed,
// Removed, Unknown and Invalid.
type Event[T any] struct {
	// Epoch is the number of the stream that reported it, from 1.
	Epoch int
	// Connection is the number of the connection of the newest stream, from 1.
	// Several streams may share one.
	Connection int
	// Changed holds new resources and those whose content changed. One that was
	// rejected is reported once it is valid, even if unchanged.
	Changed []Resource[T]
	// Confirmed names held resources that this stream reported for the first time,
	// unchanged. Together with Changed they are known to be current.
	Confirmed []string
	// Removed names what the server reported as absent.
	Removed []string
	// Resync says that Removed was found by comparing a new stream with what was
	// held. A server that has just started may be wrong about it.
	Resync bool
	// Unknown names what was asked for and not answered within ResourceTimeout. It
	// may exist or not; a value held is still the last known one.
	Unknown map[string]error
	// Invalid names resources that were rejected; a value held is kept. A resource
	// without a readable name is under its place in the response.
	Invalid map[string]error
	// Complete is set once per epoch, for a subscription to Wildcard, after all
	// resources were reported: what was not Changed, Confirmed or Invalid in this
	// epoch does not exist. In the state of the world only a Full kind is complete.
	Complete bool
	// Disconnected is the error of a connection that failed before it delivered
	// anything; nothing is removed by it.
	Disconnected error
	// Ended is why the stream that delivered ended. Nothing is removed by it, and
	// another stream is opened. Until that one delivers, what is known may be stale.
	Ended error
}

// Subscription is a set of names of one type. Its methods may be called from any
// goroutine and from inside handlers; they never wait for one.
type Subscription[T any] struct {
	client *Client
	kind   Kind[T]
	handle func(Event[T])
	done   chan struct{}

	mu     sync.Mutex // guards what is in this block
	closed bool
	busy   bool // a call of handle is in progress

	// Only Run's goroutine touches what follows.
	id     int
	cached *cachedTypeOf[T]
	names  map[string]struct{}
}

// Subscribe adds a subscription without names. All handlers of a client are called
// one at a time, in order, from Run's goroutine; a slow one blocks the stream. The
// Kind of the first subscription to a URL counts for all. They must have the same T,
// or Run panics.
func Subscribe[T any](c *Client, k Kind[T], handle func(Event[T])) *Subscription[T] {
	s := &Subscription[T]{
		client: c, kind: k, handle: handle,
		done: make(chan struct{}), names: map[string]struct{}{},
	}
	c.tasks.add(s.join)
	return s
}

// join finds the cached type of the subscription, or makes it.
func (s *Subscription[T]) join(e *engine) {
	state := e.typeState(s.kind.URL, func(i *interest) cachedType { return newCachedType(s.kind, i, &e.epoch, &e.connection) })
	t, ok := state.cached.(*cachedTypeOf[T])
	if !ok {
		panic(fmt.Sprintf("ads: %s: subscribed to as two Go types", s.kind.URL))
	}
	e.subscriptions++
	s.id, s.cached = e.subscriptions, t
}

// Watch adds names; Wildcard is all. What is known of them is reported at once,
// without asking the server again.
func (s *Subscription[T]) Watch(names ...string) {
	names = slices.Clone(names)
	s.client.tasks.add(func(*engine) { s.watch(names) })
}

// Unwatch removes names. A response that is in progress may still be reported.
func (s *Subscription[T]) Unwatch(names ...string) {
	names = slices.Clone(names)
	s.client.tasks.add(func(*engine) { s.unwatch(names) })
}

// Set makes names the whole set.
func (s *Subscription[T]) Set(names []string) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	s.client.tasks.add(func(*engine) {
		var removed []string
		for name := range s.names {
			if _, found := slices.BinarySearch(names, name); !found {
				removed = append(removed, name)
			}
		}
		s.watch(names)
		s.unwatch(removed)
	})
}

// Close removes all names. No call of the handler begins after it returned; one in
// progress may continue: see Done. It may be repeated.
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
	s.client.tasks.add(func(*engine) { s.unwatch(slices.Collect(maps.Keys(s.names))) })
}

// Done is closed once the subscription is closed and no call of its handler is in
// progress.
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
	var added []string
	for _, name := range names {
		if has(s.names, name) {
			continue
		}
		s.names[name] = struct{}{}
		s.cached.subscribe(s, name)
		added = append(added, name)
	}
	s.cached.replay(s, added)
}

func (s *Subscription[T]) unwatch(names []string) {
	for _, name := range names {
		if has(s.names, name) {
			delete(s.names, name)
			s.cached.unsubscribe(s, name)
		}
	}
}

func (t *cachedTypeOf[T]) subscribe(s *Subscription[T], name string) {
	t.interest.add(name)
	if name == Wildcard {
		t.all[s] = struct{}{}
		return
	}
	t.named[name] = append(t.named[name], s)
}

// unsubscribe removes a subscription to a name. With the last one to the wildcard,
// all names that only it covered are dropped.
func (t *cachedTypeOf[T]) unsubscribe(s *Subscription[T], name string) {
	if name == Wildcard {
		delete(t.all, s)
	} else if others := slices.DeleteFunc(t.named[name], func(o *Subscription[T]) bool { return o == s }); len(others) > 0 {
		t.named[name] = others
	} else {
		delete(t.named, name)
	}
	if !t.interest.drop(name) || name != Wildcard {
		return
	}
	for known := range t.records {
		if t.interest.subscriptions[known] == 0 {
			t.interest.dropped[known] = struct{}{}
		}
	}
}

// replay reports what is known of names, one event per stream that reported it.
func (t *cachedTypeOf[T]) replay(s *Subscription[T], names []string) {
	builders := map[int]*eventBuilder[T]{}
	event := func(epoch int) *Event[T] {
		if builders[epoch] == nil {
			builders[epoch] = t.newEvents(epoch)
		}
		return builders[epoch].event(s)
	}
	if slices.Contains(names, Wildcard) {
		names = slices.Collect(maps.Keys(t.records))
		if t.complete != 0 && t.complete == *t.epoch {
			event(t.complete).Complete = true
		}
	}
	for _, name := range names {
		r := t.records[name]
		if r == nil {
			continue
		}
		e := event(r.epoch)
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
	for _, epoch := range slices.Sorted(maps.Keys(builders)) {
		builders[epoch].deliver()
	}
}

// eventBuilder collects the events of one response, one per subscription.
type eventBuilder[T any] struct {
	cached *cachedTypeOf[T]
	epoch  int
	resync bool
	events map[*Subscription[T]]*Event[T]
}

func (t *cachedTypeOf[T]) newEvents(epoch int) *eventBuilder[T] {
	return &eventBuilder[T]{cached: t, epoch: epoch, events: map[*Subscription[T]]*Event[T]{}}
}

// event returns the event of one subscription.
func (b *eventBuilder[T]) event(s *Subscription[T]) *Event[T] {
	e := b.events[s]
	if e == nil {
		e = &Event[T]{Epoch: b.epoch, Connection: *b.cached.connection}
		b.events[s] = e
	}
	return e
}

// each calls do with the event of every subscription to a name.
func (b *eventBuilder[T]) each(name string, do func(e *Event[T])) {
	for s := range b.cached.all {
		do(b.event(s))
	}
	for _, s := range b.cached.named[name] {
		if _, both := b.cached.all[s]; !both {
			do(b.event(s))
		}
	}
}

func (b *eventBuilder[T]) changed(name string, r *record[T]) {
	b.each(name, func(e *Event[T]) { e.Changed = append(e.Changed, resource(name, r)) })
}

func resource[T any](name string, r *record[T]) Resource[T] {
	return Resource[T]{Name: name, Version: r.version, Value: r.value}
}

func (b *eventBuilder[T]) confirmed(name string) {
	b.each(name, func(e *Event[T]) { e.Confirmed = append(e.Confirmed, name) })
}

func (b *eventBuilder[T]) removed(name string) {
	b.each(name, func(e *Event[T]) {
		e.Removed = append(e.Removed, name)
		e.Resync = b.resync
	})
}

func (b *eventBuilder[T]) unknown(name string, err error) {
	b.each(name, func(e *Event[T]) { put(&e.Unknown, name, err) })
}

func (b *eventBuilder[T]) invalid(name string, err error) {
	b.each(name, func(e *Event[T]) { put(&e.Invalid, name, err) })
}

// nameless reports a resource without a readable name to every subscription, since
// any may ask for it.
func (b *eventBuilder[T]) nameless(place string, err error) {
	for _, s := range b.cached.subscribers() {
		put(&b.event(s).Invalid, place, err)
	}
}

func (b *eventBuilder[T]) complete() {
	for s := range b.cached.all {
		b.event(s).Complete = true
	}
}

func put(m *map[string]error, name string, err error) {
	if *m == nil {
		*m = map[string]error{}
	}
	(*m)[name] = err
}

// deliver calls the handlers.
func (b *eventBuilder[T]) deliver() {
	for _, s := range slices.SortedFunc(maps.Keys(b.events), byAge) {
		e := b.events[s]
		slices.SortFunc(e.Changed, func(a, b Resource[T]) int { return cmp.Compare(a.Name, b.Name) })
		slices.Sort(e.Confirmed)
		slices.Sort(e.Removed)
		s.deliver(*e)
	}
}
