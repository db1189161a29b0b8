package ads

import (
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
