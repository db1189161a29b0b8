package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Watch follows the answer to one query. It has one reader: either Next, which one
// goroutine at a time calls, or Follow. Stop may be called from any goroutine.
type Watch struct {
	client *Client
	query  Query
	wake   chan struct{}
	notify func()   // is called in place of wake; nil: wake is ready
	names  []string // what the source has to report
	stop   context.CancelCauseFunc
	ctx    context.Context //nolint:containedctx // ends Next
	once   sync.Once

	invalid   error        // why nothing can be known
	reading   atomic.Int32 // how it is read, as below
	delivered bool
	last      Snapshot
	saved     bool            // last came from the state file alone
	denied    error           // what Next returned last for want of an answer
	more      <-chan struct{} // closed when the source reports more than at the last look

	mu sync.Mutex                      // guards at
	at map[naming.HostAddress]struct{} // hosts whose routes are watched
}

// Watch follows the answer to a query until Stop or Close. It returns at once.
func (c *Client) Watch(q Query) *Watch {
	w := c.watch(q, nil)
	w.signal()
	return w
}

// observe calls a function when what is known of a query may have changed, until stop
// is called. The function must not block, nor use the client.
func (c *Client) observe(q Query, changed func()) (stop func()) {
	return c.watch(q, changed).Stop
}

func (c *Client) watch(q Query, notify func()) *Watch {
	w := &Watch{client: c, query: q, wake: make(chan struct{}, 1), notify: notify}
	w.ctx, w.stop = context.WithCancelCause(c.ctx)
	if w.invalid = c.invalid(q); w.invalid != nil {
		return w
	}
	c.index.watch(w)
	if w.names = c.names(q); w.names != nil {
		c.backend.Interest.Add(w.names...)
	}
	return w
}

func (w *Watch) signal() {
	if w.notify != nil {
		w.notify()
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Stop ends the watch without waiting for anything. It may be repeated.
func (w *Watch) Stop() {
	w.once.Do(func() {
		w.stop(ErrClosed)
		w.client.handled(w, nil)
		w.client.index.unwatch(w)
		if w.client.routes != nil {
			w.follow(nil)
		}
		if w.names != nil {
			w.client.backend.Interest.Drop(w.names...)
		}
	})
}

// Next returns the whole answer: at first as soon as it is known, later whenever
// it is different from the last one returned. While nothing else is known, the
// state file answers, with Snapshot.Err set. An error says that nothing is known:
// ErrDenied or ErrInvalid at once where the registry refuses to answer or can hold
// nothing under the name, else when ctx ends, such as ErrUnreachable or ErrPending. It is
// ErrClosed after Stop or Close. A second reader gets an error.
func (w *Watch) Next(ctx context.Context) (Snapshot, error) {
	if !w.reading.CompareAndSwap(idle, inNext) {
		return Snapshot{}, fmt.Errorf("%s: %w", w.query, errRead)
	}
	defer w.reading.Store(idle)
	return w.next(ctx)
}

// How a watch is read.
const (
	idle int32 = iota
	inNext
	followed
)

var errRead = errors.New("the watch has a reader already")

func (w *Watch) next(ctx context.Context) (Snapshot, error) {
	for {
		if w.ctx.Err() != nil {
			return Snapshot{}, ErrClosed
		}
		s, saved, err := w.look()
		if err == nil && (!w.delivered || !s.same(w.last)) {
			w.delivered, w.last, w.saved, w.denied = true, s, saved, nil
			return s, nil
		}
		if final := errors.Is(err, ErrDenied) || errors.Is(err, ErrInvalid); final && cause(err) != cause(w.denied) { //nolint:errorlint // causes are sentinels
			w.denied = err
			return Snapshot{}, err
		}
		if ctx.Err() != nil {
			return Snapshot{}, w.ended(ctx, err)
		}
		w.wait(ctx)
	}
}

// ended returns the error of a Next whose ctx ended. Why is what there was no
// answer for.
func (w *Watch) ended(ctx context.Context, why error) error {
	if w.delivered {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", why, ctx.Err())
}

// patience is how long Follow waits for a first answer before it says why there
// is none, and a mesh for the other replicas of istiod before it uses those it has.
const patience = 5 * time.Second

// Follow hands every answer to a function, in a goroutine that ends with Stop or with
// Close, which passes ErrClosed and waits for it within Options.Grace. While there is no
// first answer, it is handed the reason every few seconds. Follow returns at once: an
// error where the watch has a reader. A function that closes the client does so in a
// goroutine of its own.
func (w *Watch) Follow(handle func(Snapshot, error)) error {
	if !w.reading.CompareAndSwap(idle, followed) {
		return fmt.Errorf("%s: %w", w.query, errRead)
	}
	if !w.client.goes(func() { w.each(handle) }) {
		w.deliver(handle, Snapshot{}, ErrClosed)
	}
	return nil
}

func (w *Watch) each(handle func(Snapshot, error)) {
	for {
		limited, cancel := context.Background(), context.CancelFunc(func() {})
		if !w.delivered {
			limited, cancel = context.WithTimeout(limited, patience)
		}
		s, err := w.next(limited)
		cancel()
		closed := errors.Is(err, ErrClosed)
		if closed && w.client.ctx.Err() == nil {
			return // who stopped it is not notified
		}
		w.deliver(handle, s, err)
		if closed {
			return
		}
	}
}

// deliver hands an answer on. A panic of the callback costs this answer: it
// would end the application, as it is in a goroutine of an adapter.
func (w *Watch) deliver(handle func(Snapshot, error), s Snapshot, err error) {
	defer func() {
		p := recover()
		if p != nil {
			w.client.o.Log.Error("answer not handled, the next is handed on",
				"query", w.query.String(), "err", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
		w.client.handled(w, p)
	}()
	handle(s, err)
}

// handled records whether the function that answers are handed to panicked.
func (c *Client) handled(w *Watch, panicked any) {
	c.handling.Lock()
	defer c.handling.Unlock()
	delete(c.panicked, w)
	if panicked != nil && w.ctx.Err() == nil {
		c.panicked[w] = fmt.Errorf("%s: the function that answers are handed to: panic: %v", w.query, panicked)
	}
}

// wait returns once there may be something new, or ctx ended.
func (w *Watch) wait(ctx context.Context) {
	select {
	case <-w.wake:
	case <-w.more:
	case <-w.ctx.Done():
	case <-ctx.Done():
	}
}

// look returns the answer as it is, or why none is known, and whether it is that of
// the state file.
func (w *Watch) look() (s Snapshot, ofFile bool, err error) {
	c := w.client
	if w.invalid != nil {
		return Snapshot{}, false, w.invalid
	}
	s, found, more := c.answer(w.query, w.names)
	w.more = more
	w.route(&s)
	if found.whole {
		return s, false, nil
	}
	saved, ok := c.state.get(w.query)
	ok = ok && (!w.delivered || w.saved)
	if w.partly(&s) && (!ok || !found.doubted) {
		return s, false, nil // for as long as the rest cannot be known; why is the snapshot's
	}
	why := fmt.Errorf("%s: %w", w.query, first(c.why(), s.Err, ErrPending))
	if ok {
		c.index.doubt(saved)
		saved.Err = why
		return saved, true, nil
	}
	return s, false, why
}

// partly reports whether what is known of a query is an answer while the rest cannot be
// known: a host is found without service keys.
func (w *Watch) partly(s *Snapshot) bool {
	host := slices.ContainsFunc(w.query.each(), func(q Query) bool { return q.by == byHost })
	if host && w.query.by == byAny {
		s.Err = first(s.Err, w.client.why(), ErrPending)
	}
	return len(s.Endpoints) > 0 && (w.delivered || host || s.Err != nil)
}

// route adds the routes of their hosts to the endpoints of a snapshot, and watches
// those of hosts that are new in it.
func (w *Watch) route(s *Snapshot) {
	r := w.client.routes
	if r == nil {
		return
	}
	here, tables := make(map[naming.HostAddress]struct{}), make(map[string]Router)
	for n, e := range s.all {
		if _, seen := tables[e.Service]; !seen {
			tables[e.Service] = nil
			if a, err := naming.ParseHostAddress(e.Service); err == nil {
				here[a], tables[e.Service] = struct{}{}, r.Get(a)
			}
		}
		s.all[n].Router = tables[e.Service]
	}
	s.Endpoints = callable(s.all)
	w.follow(here)
}

// follow makes the hosts those whose routes are watched; none once it stopped.
func (w *Watch) follow(hosts map[naming.HostAddress]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		hosts = nil
	}
	for a := range hosts {
		if _, ok := w.at[a]; !ok {
			w.client.routes.Watch(a)
		}
	}
	for a := range w.at {
		if _, ok := hosts[a]; !ok {
			w.client.routes.Unwatch(a)
		}
	}
	w.at = hosts
}
