package ads

import "slices"

// Wildcard is the name that stands for all resources of a type.
const Wildcard = "*"

// Kind is a resource type and its decoder.
type Kind[T any] struct {
	// URL is the type URL, such as type.googleapis.com/envoy.config.cluster.v3.Cluster.
	URL string

	// Full means that every state-of-the-world response holds all resources, as for clusters
	// and listeners.
	Full bool

	// Decode decodes one resource. With an error it still returns the name, if that was
	// readable. It must be safe for concurrent use. It is not called for bytes that have not
	// changed. The value must not refer to data.
	Decode func(data []byte) (name string, value T, err error)
}

// Resource is one resource as it was last reported.
type Resource[T any] struct {
	Name    string
	Version string // of the server; may be empty
	Value   T
}

// Event reports what one response, one timeout or one call of Watch changed. Lists are
// sorted by name. A name is in at most one of Changed, Removed, Unknown and Invalid.
type Event[T any] struct {
	Epoch      int // number of the stream that reported it, from 1
	Connection int // number of the newest stream's connection, from 1

	// Changed resources are new, different, or valid again after a rejection.
	Changed []Resource[T]

	// Confirmed resources were reported by this stream for the first time, unchanged.
	Confirmed []string

	// Removed resources were reported as absent.
	Removed []string

	// Unknown names were not answered within 15 s. Invalid names were rejected; without a
	// readable name, the key is the position in the response. The last valid value of a
	// resource remains the newest known one.
	Unknown, Invalid map[string]error

	// Complete is set once per epoch, for the wildcard, after all resources were reported. A
	// resource that was not in Changed, Confirmed or Invalid in this epoch does not exist. In
	// state of the world, only a Full kind becomes complete.
	Complete bool

	// Disconnected is why a connection failed before its first response. Ended is why a
	// stream ended after a response. Neither removes anything. Until the next stream reports,
	// resources may be out of date.
	Disconnected, Ended error
}

// Subscription is a set of names of one type. Its methods may be called from any goroutine,
// also from handlers. They do not wait for handlers.
type Subscription[T any] struct {
	client *Client
	cached *cachedTypeOf[T]
}

// Subscribe adds the subscription to a type, without names. Run's goroutine calls all
// handlers of a client, one at a time and in order. A slow handler blocks the stream. A
// second subscription to the same type panics.
func Subscribe[T any](c *Client, k Kind[T], handle func(Event[T])) *Subscription[T] {
	t := newCachedType(k, handle, &c.loop.epoch, &c.loop.connection)
	c.tasks.add(func(l *clientLoop) { l.addType(t.subscribed) })
	return &Subscription[T]{client: c, cached: t}
}

// Watch adds names. Resources that are already known are reported at once, without a request.
func (s *Subscription[T]) Watch(names ...string) {
	names = slices.Clone(names)
	s.client.tasks.add(func(*clientLoop) { s.cached.watch(names) })
}

// Unwatch removes names. An event that is being delivered may still report them.
func (s *Subscription[T]) Unwatch(names ...string) {
	names = slices.Clone(names)
	s.client.tasks.add(func(*clientLoop) { s.cached.unwatch(names) })
}
