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
	"github.com/xds-bridge/xds-bridge/registry"
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

// invalid returns why the registry can hold nothing that answers a query, nil where it
// can hold something.
func (c *Client) invalid(q Query) error {
	var why error
	for _, one := range q.each() {
		err := c.invalidPart(one)
		if err == nil {
			return nil
		}
		why = first(why, err)
	}
	return fmt.Errorf("%s: %w", q, first(why, errNothing))
}

// invalidPart is invalid for one of several queries. It is not asked for, so that a
// registry that refuses its name says nothing of others.
func (c *Client) invalidPart(one Query) error {
	if err := one.problem(); err != nil || c.backend.Valid == nil {
		return err
	}
	for _, name := range c.backend.Names(one) {
		if err := c.backend.Valid(name); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
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

// answer returns what is known of a query whose names the source was asked for,
// and how it was found. What the source reported is asked first: the table shows it
// from then on. More is closed when the source reports more.
func (c *Client) answer(q Query, names []string) (s Snapshot, found finding, more <-chan struct{}) {
	known := c.backend.Interest.Answer(names...)
	c.index.drain()
	found = c.index.find(q)
	s = Snapshot{Query: q, Err: first(caused(found.stale, ErrUnreachable), caused(first(found.hidden, known.Err), ErrUnreadable))}
	var all []Endpoint
	for _, x := range found.services {
		for _, reported := range x.Endpoints {
			if !reported.Health.Offered() {
				continue
			}
			e := endpointOf(x, reported)
			at, doubtful := found.unconfirmed[doubted{x.Name, reported.Address()}]
			if e.unconfirmed = doubtful; doubtful && (s.Since.IsZero() || at.Before(s.Since)) {
				s.Since = at
			}
			all = append(all, e)
		}
	}
	s.all, s.Endpoints = all, callable(all)
	if found.whole = c.whole(known, found); found.whole {
		c.state.keep(s)
	}
	return s, found, known.More
}

// confirm has the state know that what is watched is still as it says.
func (c *Client) confirm() {
	for _, q := range c.index.watched() {
		c.answer(q, c.names(q))
	}
}

// names returns what the source has to report for a query.
func (c *Client) names(q Query) []string {
	if c.backend.Interest == nil {
		return nil
	}
	var all []string
	for _, one := range q.each() {
		if c.invalidPart(one) == nil {
			all = append(all, c.backend.Names(one)...)
		}
	}
	return all
}

// whole reports whether what was found is everything: the source reported it at
// least once, whether it can now or not.
func (c *Client) whole(known registry.Answer, found finding) bool {
	if found.doubted && errors.Is(found.stale, registry.ErrLimit) {
		return false // it may be what does not fit
	}
	if c.backend.Interest != nil {
		return known.Reported
	}
	return found.synced && (found.hidden == nil || !found.doubted)
}

// why says why the registry cannot be read; nil where it can.
func (c *Client) why() error {
	if stale := c.index.find(Query{}).stale; stale != nil {
		return caused(stale, ErrUnreachable)
	}
	if c.backend.Err == nil {
		return nil
	}
	return caused(c.backend.Err(), ErrUnreachable)
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

// Resolve returns the answer to a query as soon as it is known; where ctx ends
// before, an error as Watch.Next returns it. During an outage that is the last
// known one, with Snapshot.Err set. What was asked for once is kept up to date for Options.KeepFresh, so that
// asking again costs nothing.
func (c *Client) Resolve(ctx context.Context, q Query) (Snapshot, error) {
	c.linger(q)
	w := c.Watch(q)
	defer w.Stop()
	return w.Next(ctx)
}

// linger keeps a query up to date for a time.
func (c *Client) linger(q Query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lingering[q]; l != nil && l.Reset(c.o.KeepFresh) {
		return
	}
	w := c.Watch(q)
	if c.ctx.Err() != nil {
		w.Stop()
		return
	}
	var l *time.Timer
	l = time.AfterFunc(c.o.KeepFresh, func() {
		w.Stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.lingering[q] == l {
			delete(c.lingering, q)
		}
	})
	c.lingering[q] = l
}

// WaitVisible waits until an instance is among those that consumers of this
// client's registry see. Asked of a client of another registry that a bridge
// keeps in sync, it reports when the other side sees it. It returns why it does
// not where ctx ends before.
func (c *Client) WaitVisible(ctx context.Context, i Instance) error {
	for _, q := range c.backend.Shows(i) {
		if err := c.await(ctx, q, i, visible); err != nil {
			return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
		}
	}
	return nil
}

// awaitAbsence waits until a query does not find an instance, and no longer where the
// registry refuses to show it.
func (c *Client) awaitAbsence(ctx context.Context, q Query, i Instance) error {
	if err := c.await(ctx, q, i, absent); err != nil {
		return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
	}
	return nil
}

// presence is what is awaited of the address of an instance.
type presence uint8

const (
	visible presence = iota
	absent
)

// await waits until a query finds the address of an instance, or does not.
func (c *Client) await(ctx context.Context, q Query, i Instance, want presence) error {
	w := c.Watch(q)
	defer w.Stop()
	for {
		s, err := w.Next(ctx)
		if want == visible && errors.Is(err, ErrDenied) && ctx.Err() == nil {
			continue // it may be reported before ctx ends
		}
		if want == absent && err == nil && errors.Is(s.Err, ErrDenied) {
			err = s.Err
		}
		if err != nil {
			return first(c.publishing(), c.whyLeftOut(q, err))
		}
		if s.Err == nil && s.shows(i) == (want == visible) {
			return nil
		}
	}
}

// whyLeftOut adds to an error what was left out of an answer.
func (c *Client) whyLeftOut(q Query, err error) error {
	for _, s := range c.index.find(q).services {
		if why := c.table.SkipReason(string(s.Name)); why != "" {
			return fmt.Errorf("%s: left out of %s: %s: %w", q, s.Name, why, err)
		}
	}
	if cause(err) == nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	return err // which names it
}

// publishing returns why something is not published.
func (c *Client) publishing() error {
	if c.backend.Publisher == nil {
		return nil
	}
	return caused(firstOf(c.backend.Publisher.Problems()), ErrUnreachable)
}

// Latest returns what is known now of an endpoint of an earlier answer, for frameworks
// that keep what an address came with first; not ok, and as it was, where it is no
// longer there.
func (c *Client) Latest(e Endpoint) (now Endpoint, ok bool) {
	now, ok = c.index.latest(e)
	if a, err := naming.ParseHostAddress(now.Service); err == nil && c.routes != nil {
		now.Router = c.routes.Get(a)
	}
	return now, ok
}
