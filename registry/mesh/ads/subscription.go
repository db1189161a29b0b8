package ads

import (
	"cmp"
	"maps"
	"slices"
)

// Wildcard is the name of everything that the server has of a type.
const Wildcard = "*"

// Kind is a resource type and how to decode it.
type Kind[T any] struct {
	URL  string // type.googleapis.com/envoy.config.cluster.v3.Cluster
	Full bool   // a state-of-the-world response holds all resources: clusters and listeners

	// Decode decodes one resource. With an error it still returns the name if that was
	// readable. It is called for new bytes only, and concurrently. The value must not
	// refer to data.
	Decode func(data []byte) (name string, value T, err error)
}

// Resource is one resource as it was last reported.
type Resource[T any] struct {
	Name    string
	Version string // of the server; may be empty
	Value   T
}

// Event is what one response, one timeout or one call of Watch changed. Lists are
// sorted by name; a name is in at most one of Changed, Removed, Unknown and Invalid.
type Event[T any] struct {
	Epoch      int // number of the stream that reported it, from 1
	Connection int // number of the newest stream's connection, from 1

	Changed   []Resource[T]    // new, different, or valid again after a rejection
	Confirmed []string         // held resources that this stream reported for the first time, unchanged
	Removed   []string         // reported as absent
	Unknown   map[string]error // not answered within 15 s; a value held is the last known
	Invalid   map[string]error // rejected, by name or by place in the response; a value held is kept

	// Complete is set once per epoch, for the wildcard, after all resources were
	// reported: what was not Changed, Confirmed or Invalid in this epoch does not
	// exist. In the state of the world only a Full kind is complete.
	Complete bool

	// Disconnected is why a connection failed before it delivered anything, Ended why
	// the stream ended that delivered. Nothing is removed by them; until another stream
	// delivers, what is known may be stale.
	Disconnected, Ended error
}

// Subscription is a set of names of one type. Its methods may be called from any
// goroutine and from inside handlers; they never wait for one.
type Subscription[T any] struct {
	client *Client
	cached *cachedTypeOf[T]
}

// Subscribe adds the subscription to a type, without names. All handlers of a client
// are called one at a time, in order, from Run's goroutine; a slow one blocks the
// stream. A client has one subscription per type.
func Subscribe[T any](c *Client, k Kind[T], handle func(Event[T])) *Subscription[T] {
	t := newCachedType(k, handle, &c.loop.epoch, &c.loop.connection)
	c.tasks.add(func(l *clientLoop) { l.addType(t.subscribed) })
	return &Subscription[T]{client: c, cached: t}
}

// Watch adds names; Wildcard is all. What is known of them is reported at once,
// without asking the server again.
func (s *Subscription[T]) Watch(names ...string) {
	names = slices.Clone(names)
	s.client.tasks.add(func(*clientLoop) { s.cached.watch(names) })
}

// Unwatch removes names. A response that is in progress may still be reported.
func (s *Subscription[T]) Unwatch(names ...string) {
	names = slices.Clone(names)
	s.client.tasks.add(func(*clientLoop) { s.cached.unwatch(names) })
}

func (t *cachedTypeOf[T]) watch(names []string) {
	var added []string
	for _, name := range names {
		if t.subscribed.add(name) {
			added = append(added, name)
		}
	}
	t.replay(added)
}

// unwatch removes names. With the wildcard, all names that only it covered are
// dropped.
func (t *cachedTypeOf[T]) unwatch(names []string) {
	for _, name := range names {
		if !t.subscribed.drop(name) || name != Wildcard {
			continue
		}
		for known := range t.resources {
			if !has(t.subscribed.names, known) {
				t.subscribed.droppedNames[known] = struct{}{}
			}
		}
	}
}

// replay reports what is known of names, one event per stream that reported it.
func (t *cachedTypeOf[T]) replay(names []string) {
	builders := map[int]*eventBuilder[T]{}
	at := func(epoch int) *eventBuilder[T] {
		if builders[epoch] == nil {
			builders[epoch] = t.newEvent(epoch)
		}
		return builders[epoch]
	}
	if slices.Contains(names, Wildcard) {
		names = slices.Collect(maps.Keys(t.resources))
		if t.complete != 0 && t.complete == *t.epoch {
			at(t.complete).complete()
		}
	}
	for _, name := range names {
		r := t.resources[name]
		if r == nil {
			continue
		}
		b := at(r.epoch)
		if r.held {
			b.changed(name, r)
		}
		if r.absent {
			b.removed(name)
		}
		if r.unknown != nil {
			b.unknown(name, r.unknown)
		}
		if r.invalid != nil {
			b.invalid(name, r.invalid)
		}
	}
	for _, epoch := range slices.Sorted(maps.Keys(builders)) {
		builders[epoch].deliver()
	}
}

// eventBuilder collects the event of one response, without names that are not
// subscribed to.
type eventBuilder[T any] struct {
	cached *cachedTypeOf[T]
	event  Event[T]
	filled bool
}

func (t *cachedTypeOf[T]) newEvent(epoch int) *eventBuilder[T] {
	return &eventBuilder[T]{cached: t, event: Event[T]{Epoch: epoch, Connection: *t.connection}}
}

// concerns reports whether a name is subscribed to; then the event is delivered.
func (b *eventBuilder[T]) concerns(name string) bool {
	concerns := b.cached.subscribed.has(name)
	b.filled = b.filled || concerns
	return concerns
}

func (b *eventBuilder[T]) changed(name string, r *cachedResource[T]) {
	if b.concerns(name) {
		b.event.Changed = append(b.event.Changed, Resource[T]{Name: name, Version: r.version, Value: r.value})
	}
}

func (b *eventBuilder[T]) confirmed(name string) {
	if b.concerns(name) {
		b.event.Confirmed = append(b.event.Confirmed, name)
	}
}

func (b *eventBuilder[T]) removed(name string) {
	if b.concerns(name) {
		b.event.Removed = append(b.event.Removed, name)
	}
}

func (b *eventBuilder[T]) unknown(name string, err error) {
	if b.concerns(name) {
		put(&b.event.Unknown, name, err)
	}
}

func (b *eventBuilder[T]) invalid(name string, err error) {
	if b.concerns(name) {
		put(&b.event.Invalid, name, err)
	}
}

// nameless reports a resource without a readable name, which may have any name.
func (b *eventBuilder[T]) nameless(place string, err error) {
	if len(b.cached.subscribed.names) > 0 {
		b.filled = true
		put(&b.event.Invalid, place, err)
	}
}

func (b *eventBuilder[T]) complete() {
	if b.concerns(Wildcard) {
		b.event.Complete = true
	}
}

func put(m *map[string]error, name string, err error) {
	if *m == nil {
		*m = map[string]error{}
	}
	(*m)[name] = err
}

// deliver calls the handler, if there is anything to report.
func (b *eventBuilder[T]) deliver() {
	if !b.filled {
		return
	}
	e := &b.event
	slices.SortFunc(e.Changed, func(a, b Resource[T]) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(e.Confirmed)
	slices.Sort(e.Removed)
	b.cached.handle(*e)
}
