package ads

import (
	"cmp"
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

// Wildcard is the name that stands for everything the server has of a type.
const Wildcard = "*"

// Kind is a resource type as a subscriber wants it read.
type Kind[T any] struct {
	// URL is the type URL, type.googleapis.com/envoy.config.cluster.v3.Cluster.
	URL string
	// Decode reads one resource, whose bytes are of type URL. It returns the name
	// even beside an error where it could be read, so that the error is told
	// under it. It is called only for bytes that are new, from several goroutines
	// where many are; the value may be shared among subscribers and must not
	// refer to data.
	Decode func(data []byte) (name string, value T, err error)
	// Full says that a state-of-the-world response holds all resources, so that
	// absence means gone: clusters and listeners.
	Full bool
}

// Resource is one resource as it was last told.
type Resource[T any] struct {
	Name    string
	Version string // as the server gave it; may be empty
	Value   T
}

// Event is what one response, one expiry or one subscription changed, for one
// subscription. Lists are sorted by name; a name is in at most one of Changed,
// Removed, Unknown and Invalid.
type Event[T any] struct {
	// Epoch is the number of the stream that told it, from 1.
	Epoch int
	// Connection is the number of the connection of the newest stream, from 1;
	// several streams may share one.
	Connection int
	// Changed holds new resources and those whose content changed. One that was
	// rejected before is reported again once it is valid, even if unchanged.
	Changed []Resource[T]
	// Confirmed names held resources that this stream told for the first time and
	// that are as they were; with Changed it is all that is known to be current.
	Confirmed []string
	// Removed names what the server said is not there (any more).
	Removed []string
	// Resync is set where Removed was found while a new stream was compared with
	// what was held before, rather than told as it happened. A server that has
	// only just started may be wrong about it.
	Resync bool
	// Unknown names what was asked for and not answered within Silence. It may
	// exist or not; a value held is still the last known one.
	Unknown map[string]error
	// Invalid names resources that were rejected; a value held stays. A resource
	// without a readable name is under its place in the response.
	Invalid map[string]error
	// Complete is set once per epoch, for a subscription to Wildcard, where this
	// event and those before it of the same epoch told the whole set: what was
	// neither Changed nor Confirmed nor Invalid in this epoch does not exist. In
	// the state of the world only a Full kind is ever complete.
	Complete bool
	// Disconnected is the error of a connection that failed before it delivered
	// anything; nothing is removed by it.
	Disconnected error
	// Ended is why the stream ended that delivered, told before it is closed.
	// Nothing is removed by it, and another stream is opened: until that one
	// tells, what is known may be out of date.
	Ended error
}

// eventBuilder gathers what one message means for each subscription.
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
func (n *eventBuilder[T]) event(s *Subscription[T]) *Event[T] {
	e := n.events[s]
	if e == nil {
		e = &Event[T]{Epoch: n.epoch, Connection: *n.cached.link}
		n.events[s] = e
	}
	return e
}

// each calls do with the event of every subscription that name concerns.
func (n *eventBuilder[T]) each(name string, do func(e *Event[T])) {
	for s := range n.cached.all {
		do(n.event(s))
	}
	for _, s := range n.cached.named[name] {
		if _, both := n.cached.all[s]; !both {
			do(n.event(s))
		}
	}
}

func (n *eventBuilder[T]) changed(name string, r *record[T]) {
	n.each(name, func(e *Event[T]) { e.Changed = append(e.Changed, resource(name, r)) })
}

func resource[T any](name string, r *record[T]) Resource[T] {
	return Resource[T]{Name: name, Version: r.version, Value: r.value}
}

func (n *eventBuilder[T]) confirmed(name string) {
	n.each(name, func(e *Event[T]) { e.Confirmed = append(e.Confirmed, name) })
}

func (n *eventBuilder[T]) removed(name string) {
	n.each(name, func(e *Event[T]) {
		e.Removed = append(e.Removed, name)
		e.Resync = n.resync
	})
}

func (n *eventBuilder[T]) unknown(name string, err error) {
	n.each(name, func(e *Event[T]) { put(&e.Unknown, name, err) })
}

func (n *eventBuilder[T]) invalid(name string, err error) {
	n.each(name, func(e *Event[T]) { put(&e.Invalid, name, err) })
}

// nameless reports a resource whose name could not be read to everybody, since
// it may be anybody's.
func (n *eventBuilder[T]) nameless(place string, err error) {
	for _, s := range n.cached.subscribers() {
		put(&n.event(s).Invalid, place, err)
	}
}

func (n *eventBuilder[T]) complete() {
	for s := range n.cached.all {
		n.event(s).Complete = true
	}
}

func put(m *map[string]error, name string, err error) {
	if *m == nil {
		*m = map[string]error{}
	}
	(*m)[name] = err
}

// deliver calls the handlers.
func (n *eventBuilder[T]) deliver() {
	for _, s := range slices.SortedFunc(maps.Keys(n.events), byAge) {
		e := n.events[s]
		slices.SortFunc(e.Changed, func(a, b Resource[T]) int { return cmp.Compare(a.Name, b.Name) })
		slices.Sort(e.Confirmed)
		slices.Sort(e.Removed)
		s.deliver(*e)
	}
}
