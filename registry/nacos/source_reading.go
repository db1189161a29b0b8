package nacos

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A reading is what a source knows of its servers. Only the loop of follow
// touches it; the requests run beside it and hand their answers to it as
// functions.
type reading struct {
	*Source
	table         *registry.Table
	scopes        []*scope
	watched       map[serviceKey]*watchedService
	marked        map[string]error // what was reported to the table as unknown
	marksOutdated bool             // that may have to change

	documents documents

	// What holds for one connection.
	cn             *conn
	inbox          *inbox
	requests       sync.WaitGroup
	done           chan func()
	running        int // requests for services
	queue          []*watchedService
	pending        int      // services that the first reading waits for
	synced         bool     // the first reading is over
	interestSynced bool     // what Interest wants was looked at on this connection
	news           []string // names that Interest may have to report
	throttled      int
	resume         time.Time // when a server that throttles may be asked again
	put            []*registry.Service
	gone           []registry.Name
}

// A scope is what is known of the services of one namespace and group.
type scope struct {
	Scope
	watched map[string]*watchedService
	failing map[*watchedService]struct{}
	foreign int

	listed, asking bool
	fails          int
	due            time.Time
	err            error // of the last list
}

func newReading(s *Source, table *registry.Table) *reading {
	r := &reading{Source: s, table: table, watched: make(map[serviceKey]*watchedService), marked: make(map[string]error), documents: newDocuments(s.opts.Asker, table)}
	for _, at := range s.opts.Scopes {
		r.scopes = append(r.scopes, &scope{Scope: at, watched: make(map[string]*watchedService), failing: make(map[*watchedService]struct{})})
	}
	return r
}

// begin forgets what held for an earlier connection.
func (r *reading) begin(cn *conn) {
	r.cn, r.synced, r.interestSynced, r.throttled, r.resume = cn, false, false, 0, time.Time{}
	r.queue, r.pending, r.running, r.put, r.gone, r.news = nil, 0, 0, nil, nil, nil
	r.done = make(chan func(), r.opts.ReadAhead+len(r.scopes)) // so that none waits for the loop
	for _, s := range r.scopes {
		s.listed, s.asking, s.fails, s.due = false, false, 0, time.Time{}
		for _, w := range s.watched {
			w.renew()
		}
	}
}

// follow reads everything and then takes changes in until the connection has
// to go, and returns why.
func (r *reading) follow(ctx context.Context, cn *conn, ended <-chan error) error {
	r.begin(cn)
	ctx, cancel := context.WithCancel(ctx)
	r.depend()
	defer r.documents.Wait()
	defer r.requests.Wait()
	defer cancel()
	const step = 250 * time.Millisecond
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	r.queueDue()
	for {
		r.start(ctx)
		r.documents.Start(ctx, time.Now())
		r.publish()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case answered := <-r.done:
			answered()
		case res := <-r.documents.Results():
			r.fetched(res)
		case <-r.inbox.ready:
			r.pushes()
		case <-r.opts.Interest.Changed():
			r.interestSynced = false
		case <-ticker.C:
			r.queueDue()
		}
		r.drain()
	}
}

// drain takes the answers in that are there.
func (r *reading) drain() {
	for {
		select {
		case answered := <-r.done:
			answered()
		default:
			return
		}
	}
}

// queueDue queues the services whose time has come.
func (r *reading) queueDue() {
	t := time.Now()
	for _, w := range r.watched {
		if !w.due.IsZero() && !w.due.After(t) {
			r.enqueue(w)
		}
	}
}

// enqueue has a service asked for, once more if that is under way.
func (r *reading) enqueue(w *watchedService) {
	w.due = time.Time{}
	switch {
	case w.asking:
		w.again = true
	case !w.queued:
		w.queued = true
		r.queue = append(r.queue, w)
	}
}

// schedule has a service asked for at the time that a verdict says. No
// service is asked for more than once in lookAgain because of pushes.
func (r *reading) schedule(w *watchedService, at when) {
	t := time.Now()
	due := t.Add(r.opts.VerifyInterval)
	switch at {
	case now:
		due = w.asked.Add(lookAgain)
	case shortly:
		due = t.Add(lookAgain)
	case inTurn:
	}
	switch {
	case !due.After(t):
		r.enqueue(w)
	case !w.queued && (w.due.IsZero() || due.Before(w.due)):
		w.due = due
	}
}

// start sends the requests that may go.
func (r *reading) start(ctx context.Context) {
	t := time.Now()
	if t.Before(r.resume) {
		return
	}
	r.syncInterest()
	for _, s := range r.scopes {
		if r.opts.Interest == nil && !s.asking && !s.due.After(t) {
			s.asking = true
			r.request(func() func() {
				all, err := names(ctx, r.cn, s.Scope)
				return func() { r.listed(s, all, err) }
			})
		}
	}
	for r.running < r.opts.ReadAhead && len(r.queue) > 0 {
		w := r.queue[0]
		r.queue = r.queue[1:]
		switch {
		case !w.queued: // forgotten meanwhile
		case w.leaving:
			r.leave(ctx, w)
		default:
			r.ask(ctx, w)
		}
	}
}

// request runs a call beside the loop, and what it returns within it.
func (r *reading) request(call func() func()) {
	r.requests.Go(func() { r.done <- call() })
}

func (r *reading) ask(ctx context.Context, w *watchedService) {
	w.queued, w.asking, w.asked = false, true, time.Now()
	r.running++
	before := w.stamp
	r.request(func() func() {
		t, err := r.subscribe(ctx, r.cn, w.key)
		return func() {
			r.running--
			if w.asking = false; r.watched[w.key] != w {
				return // forgotten meanwhile
			}
			r.answered(w, t, before, err)
			if w.again {
				w.again = false
				r.schedule(w, shortly)
			}
		}
	})
}

// leave ends the subscription of a service that is no more. It stays watched
// until then, so that a new one of its name is not subscribed before.
func (r *reading) leave(ctx context.Context, w *watchedService) {
	w.queued, w.asking = false, true
	r.running++
	r.request(func() func() {
		err := unsubscribe(ctx, r.cn, w.key)
		return func() {
			r.running--
			if err != nil {
				r.log.Debug("subscription not ended", "service", w.key.name, "err", err)
			}
			if r.watched[w.key] == w {
				r.forget(w)
			}
			r.interestSynced = false // somebody may want it again by now
		}
	})
}

// connection reads and follows a server over one connection, and returns why
// that ended.
func (r *reading) connection(ctx context.Context, cn *conn) error {
	c := r.client
	r.inbox = newInbox()
	cn.listen(r.received)
	c.use(cn)
	r.table.Dialed()
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	c.goroutines.Go(func() { ended <- cn.watch(ctx) })
	c.goroutines.Go(func() { r.awaitRecheck(ctx, cancel) })
	err := r.follow(ctx, cn, ended)
	if errors.Is(context.Cause(ctx), errRecheck) {
		err = errRecheck
	}
	cancel(nil)
	c.drop(cn, err)
	cn.close()
	<-cn.dead
	return err
}

// awaitRecheck ends a connection when a new one is asked for.
func (r *reading) awaitRecheck(ctx context.Context, end context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
	case <-r.rechecks:
		end(errRecheck)
	}
}
