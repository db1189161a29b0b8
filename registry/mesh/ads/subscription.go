package ads

// Subscription is a set of names of one type that somebody wants to hear of.
// Its methods may be called from any goroutine and from inside handlers; they
// never wait for one.
type Subscription[T any] struct {
	done chan struct{}
}

// Subscribe adds a subscription that asks for nothing yet. All handlers of a
// client are called one at a time, in order, from Run's goroutine; a slow one
// holds the stream. Two subscriptions to one URL must be of one T; the Decode
// and Full of the first count.
func Subscribe[T any](c *Client, k Kind[T], handle func(Event[T])) *Subscription[T] {
	return &Subscription[T]{done: make(chan struct{})}
}

// Watch adds names; Wildcard is all. What is known of them already is told in
// one event, without asking the server again.
func (s *Subscription[T]) Watch(names ...string) {}

// Unwatch takes names back. Nothing is told of them any more.
func (s *Subscription[T]) Unwatch(names ...string) {}

// Set makes names the whole set.
func (s *Subscription[T]) Set(names []string) {}

// Close takes everything back. No call of the handler begins after it returned;
// one that is under way may still be: see Done. It may be repeated.
func (s *Subscription[T]) Close() {}

// Done is closed when the subscription was closed and no call of its handler is
// under way.
func (s *Subscription[T]) Done() <-chan struct{} { return s.done }
