package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// Watch follows the answer to one query. Next is for one goroutine; Stop may be
// called from any.
type Watch struct {
	client *Client
	query  Query
	wake   chan struct{}
	wish   int // the number of the interest
	stop   context.CancelCauseFunc
	ctx    context.Context //nolint:containedctx // ends Next
	once   sync.Once

	told bool
	last Snapshot

	mu sync.Mutex                      // guards at
	at map[naming.HostAddress]struct{} // hosts whose routes are watched
}

// Watch follows the answer to a query until Stop or Close. It returns at once.
func (c *Client) Watch(q Query) *Watch {
	w := &Watch{client: c, query: q, wake: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancelCause(c.ctx)
	w.signal()
	c.index.watch(w)
	if c.backend.Interest != nil {
		w.wish = c.backend.Interest.Add(w.names()...)
	}
	return w
}

// names returns what the source has to tell of.
func (w *Watch) names() []string {
	var all []string
	for _, q := range w.query.each() {
		all = append(all, w.client.backend.Names(q)...)
	}
	return all
}

func (w *Watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Stop ends the watch without waiting for anything. It may be repeated.
func (w *Watch) Stop() {
	w.once.Do(func() {
		w.stop(ErrClosed)
		w.client.index.unwatch(w)
		if w.client.routes != nil {
			w.follow(nil)
		}
		if i := w.client.backend.Interest; i != nil {
			i.Drop(w.names()...)
		}
	})
}

// Next returns the whole answer: at first as soon as it is known, later whenever
// it is different from the last one returned. While the registry has not been
// reached since the start, the state file answers, with Snapshot.Err set. The
// error is ErrClosed after Stop or Close, or says why ctx ended with nothing
// known.
func (w *Watch) Next(ctx context.Context) (Snapshot, error) {
	for {
		if w.ctx.Err() != nil {
			return Snapshot{}, ErrClosed
		}
		s, ok := w.look()
		if ok && (!w.told || !s.same(w.last)) {
			w.told, w.last = true, s
			return s, nil
		}
		if err := w.wait(ctx); err != nil {
			return Snapshot{}, err
		}
	}
}

// patience is how long Follow waits for a first answer before it says why there
// is none.
const patience = 5 * time.Second

// Follow hands every answer to tell until ctx ends or the watch does, which is
// told as ErrClosed. While there is no first answer, tell is told why every few
// seconds.
func (w *Watch) Follow(ctx context.Context, tell func(Snapshot, error)) {
	for ctx.Err() == nil {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if !w.told {
			limited, cancel = context.WithTimeout(ctx, patience)
		}
		s, err := w.Next(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		tell(s, err)
		if errors.Is(err, ErrClosed) {
			return
		}
	}
}

// wait returns once there may be something new.
func (w *Watch) wait(ctx context.Context) error {
	told, more := w.client.backend.Interest.Await(w.wish)
	if told {
		more = nil
	}
	select {
	case <-w.wake:
	case <-more:
	case <-w.ctx.Done():
	case <-ctx.Done():
		if w.told {
			return ctx.Err()
		}
		return fmt.Errorf("%s: not known yet: %w", w.query, w.client.why(ctx))
	}
	return nil
}

// why says why something is not known.
func (c *Client) why(ctx context.Context) error {
	_, stale, _ := c.index.find(Query{})
	if err := first(stale, c.fault()); err != nil {
		return caused(err)
	}
	return ctx.Err()
}

// look returns the answer as it is, and whether it may be told: the source told
// of all that was asked for, or there is something from before.
func (w *Watch) look() (Snapshot, bool) {
	c := w.client
	c.index.drain()
	found, unsure, synced := c.index.find(w.query)
	told, _ := c.backend.Interest.Await(w.wish)
	whole := synced && told
	s := Snapshot{Query: w.query, Err: caused(unsure)}
	for _, x := range found {
		for _, e := range x.Endpoints {
			if e.Health.Offered() {
				s.Endpoints = append(s.Endpoints, Endpoint{Endpoint: e, Service: x})
			}
		}
	}
	w.route(&s)
	switch {
	case whole:
		c.state.keep(s)
		return s, true
	case len(s.Endpoints) > 0 && (w.told || w.query.by == byHost):
		return s, true
	}
	saved, ok := c.state.get(w.query)
	if ok && !w.told {
		saved.Err = first(c.why(w.ctx), ErrUnreachable)
		return saved, true
	}
	return s, false
}

// route adds the routes of the hosts in a snapshot, and watches those of hosts
// that are new in it.
func (w *Watch) route(s *Snapshot) {
	r := w.client.routes
	if r == nil {
		return
	}
	here := make(map[naming.HostAddress]struct{})
	for _, e := range s.Endpoints {
		if a, err := naming.ParseHostAddress(string(e.Service.Name)); err == nil {
			here[a] = struct{}{}
		}
	}
	w.follow(here)
	for a := range here {
		if t := r.Get(a); t != nil {
			if s.Routes == nil {
				s.Routes = make(map[naming.HostAddress]*routes.Table)
			}
			s.Routes[a] = t
		}
	}
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
// before, the last known one with Snapshot.Err set, or an error where there is
// none. What was asked for once is kept up to date for Options.Linger, so that
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
	if l := c.lingering[q]; l != nil && l.Reset(c.o.Linger) {
		return
	}
	w := c.Watch(q)
	if c.ctx.Err() != nil {
		w.Stop()
		return
	}
	var l *time.Timer
	l = time.AfterFunc(c.o.Linger, func() {
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
// keeps in step, it tells when the other side sees it. It returns why it does
// not where ctx ends before.
func (c *Client) WaitVisible(ctx context.Context, i Instance) error {
	return c.await(ctx, i, func(seen bool) bool { return seen })
}

// await waits until every service key of an instance shows its address, or none
// does.
func (c *Client) await(ctx context.Context, i Instance, enough func(seen bool) bool) error {
	for _, key := range i.Keys() {
		if err := c.awaitKey(ctx, ByKey(key), i, enough); err != nil {
			return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
		}
	}
	return nil
}

func (c *Client) awaitKey(ctx context.Context, q Query, i Instance, enough func(seen bool) bool) error {
	w := c.Watch(q)
	defer w.Stop()
	for {
		s, err := w.Next(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", q, first(c.publishing(), err))
		}
		seen := false
		for _, e := range s.Endpoints {
			seen = seen || e.Host == i.Host && e.Port == i.Port
		}
		if s.Err == nil && enough(seen) {
			return nil
		}
	}
}

// publishing returns why something is not published.
func (c *Client) publishing() error {
	if c.backend.Publisher == nil {
		return nil
	}
	return caused(c.backend.Publisher.Fault())
}
