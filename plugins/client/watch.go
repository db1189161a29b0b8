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

// Watch follows the answer to one query. It has one reader: Next, called by one goroutine
// at a time, or Follow. Stop may be called from any goroutine.
type Watch struct {
	// Immutable.
	client  *Client
	query   Query
	wake    chan struct{}
	notify  func()          // called instead of making wake ready; nil: wake becomes ready
	names   []string        // names that the source has to report
	ctx     context.Context //nolint:containedctx // ends Next
	stop    context.CancelCauseFunc
	invalid error // why there can be no answer

	once    sync.Once
	reading atomic.Int32 // idle, inNext or followed

	// Owned by the reader.
	delivered    bool // an answer was returned
	last         Snapshot
	lastFromFile bool            // last came only from the state file
	lastRefusal  error           // returned last because there was no answer
	moreReported <-chan struct{} // closed when the source reports more names

	mu          sync.Mutex
	routedHosts map[naming.HostAddress]struct{} // hosts whose routes are watched
}

// Watch follows the answer to a query until Stop or Close. It returns at once.
func (c *Client) Watch(q Query) *Watch {
	w := c.watch(q, nil)
	w.signal()
	return w
}

// observe calls changed whenever the answer to a query may have changed, until stop is
// called. The function changed must not block, nor use the client.
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
	if w.names = c.sourceNames(q); w.names != nil {
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

// Stop ends the watch and returns at once. It may be called more than once.
func (w *Watch) Stop() {
	w.once.Do(func() {
		w.stop(ErrClosed)
		w.client.recordPanic(w, nil)
		w.client.index.unwatch(w)
		if w.client.routes != nil {
			w.watchRoutes(nil)
		}
		if w.names != nil {
			w.client.backend.Interest.Drop(w.names...)
		}
	})
}

// Next returns the whole answer: first as soon as it is known, then whenever it differs from
// the last one returned. While only the state file has an answer, Next returns that, with
// Snapshot.Err set.
//
// An error says that there is no answer. ErrDenied or ErrInvalid is returned at once, if the
// registry refuses to answer or cannot hold anything under the name. Other causes, such as
// ErrUnreachable or ErrPending, are returned when ctx ends. After Stop or Close the error is
// ErrClosed. A second reader gets an error.
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

var errRead = errors.New("the watch already has a reader")

func (w *Watch) next(ctx context.Context) (Snapshot, error) {
	for {
		if w.ctx.Err() != nil {
			return Snapshot{}, ErrClosed
		}
		s, fromFile, err := w.current()
		if err == nil && (!w.delivered || !s.same(w.last)) {
			w.delivered, w.last, w.lastFromFile, w.lastRefusal = true, s, fromFile, nil
			return s, nil
		}
		refused := errors.Is(err, ErrDenied) || errors.Is(err, ErrInvalid)
		if refused && cause(err) != cause(w.lastRefusal) { //nolint:errorlint // causes are sentinels
			w.lastRefusal = err
			return Snapshot{}, err
		}
		if ctx.Err() != nil {
			return Snapshot{}, w.endError(ctx, err)
		}
		w.wait(ctx)
	}
}

// endError returns the error of a Next whose ctx ended. Why says why there was no answer.
func (w *Watch) endError(ctx context.Context, why error) error {
	if w.delivered {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", why, ctx.Err())
}

// firstAnswerWait is how long Follow waits for a first answer before it reports why there is
// none.
const firstAnswerWait = 5 * time.Second

// Follow passes every answer to a function, in its own goroutine, until Stop or Close. Close
// passes ErrClosed and waits for the function within Options.Grace. While there is no first
// answer, the function receives the reason every few seconds. Follow returns at once, with an
// error if the watch already has a reader. A function that closes the client must do so in
// another goroutine.
func (w *Watch) Follow(handle func(Snapshot, error)) error {
	if !w.reading.CompareAndSwap(idle, followed) {
		return fmt.Errorf("%s: %w", w.query, errRead)
	}
	if !w.client.startFollower(func() { w.deliverAll(handle) }) {
		w.deliver(handle, Snapshot{}, ErrClosed)
	}
	return nil
}

func (w *Watch) deliverAll(handle func(Snapshot, error)) {
	for {
		limited, cancel := context.Background(), context.CancelFunc(func() {})
		if !w.delivered {
			limited, cancel = context.WithTimeout(limited, firstAnswerWait)
		}
		s, err := w.next(limited)
		cancel()
		closed := errors.Is(err, ErrClosed)
		if closed && w.client.ctx.Err() == nil {
			return // the caller of Stop knows
		}
		w.deliver(handle, s, err)
		if closed {
			return
		}
	}
}

// deliver passes an answer to a callback. A panic of the callback loses only this answer.
// Without the recovery it would end the application, as an adapter's goroutine runs it.
func (w *Watch) deliver(handle func(Snapshot, error), s Snapshot, err error) {
	defer func() {
		p := recover()
		if p != nil {
			w.client.o.Log.Error("callback of Follow panicked, continuing with the next answer",
				"query", w.query.String(), "err", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
		w.client.recordPanic(w, p)
	}()
	handle(s, err)
}

// recordPanic records whether a callback panicked with its last answer.
func (c *Client) recordPanic(w *Watch, panicked any) {
	c.handling.Lock()
	defer c.handling.Unlock()
	delete(c.panicked, w)
	if panicked != nil && w.ctx.Err() == nil {
		c.panicked[w] = fmt.Errorf("%s: callback of Follow: panic: %v", w.query, panicked)
	}
}

// wait returns when there may be something new, or when ctx ends.
func (w *Watch) wait(ctx context.Context) {
	select {
	case <-w.wake:
	case <-w.moreReported:
	case <-w.ctx.Done():
	case <-ctx.Done():
	}
}

// current returns the current answer and whether it is from the state file, or why there is
// no answer.
func (w *Watch) current() (s Snapshot, fromFile bool, err error) {
	c := w.client
	if w.invalid != nil {
		return Snapshot{}, false, w.invalid
	}
	s, found, more := c.answer(w.query, w.names)
	w.moreReported = more
	w.addRoutes(&s)
	if found.complete {
		return s, false, nil
	}
	saved, ok := c.state.lookup(w.query)
	ok = ok && (!w.delivered || w.lastFromFile)
	if w.isPartialAnswer(&s) && (!ok || !found.onlyDoubts) {
		return s, false, nil // s.Err says why the other endpoints are unknown
	}
	why := fmt.Errorf("%s: %w", w.query, firstError(c.readError(), s.Err, ErrPending))
	if ok {
		c.index.addDoubts(saved)
		saved.Err = why
		return saved, true, nil
	}
	return s, false, why
}

// isPartialAnswer reports whether the known endpoints are an answer although others cannot
// be known: a host is found without service keys.
func (w *Watch) isPartialAnswer(s *Snapshot) bool {
	host := slices.ContainsFunc(w.query.alternatives(), func(q Query) bool { return q.by == byHost })
	if host && w.query.by == byAny {
		s.Err = firstError(s.Err, w.client.readError(), ErrPending)
	}
	return len(s.Endpoints) > 0 && (w.delivered || host || s.Err != nil)
}

// addRoutes adds the routes of their hosts to the endpoints of a snapshot, and watches the
// routes of exactly these hosts.
func (w *Watch) addRoutes(s *Snapshot) {
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
	w.watchRoutes(here)
}

// watchRoutes replaces the hosts whose routes are watched; after Stop there are none.
func (w *Watch) watchRoutes(hosts map[naming.HostAddress]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		hosts = nil
	}
	for a := range hosts {
		if _, ok := w.routedHosts[a]; !ok {
			w.client.routes.Watch(a)
		}
	}
	for a := range w.routedHosts {
		if _, ok := hosts[a]; !ok {
			w.client.routes.Unwatch(a)
		}
	}
	w.routedHosts = hosts
}
