package nacos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/registry"
)

// readAhead is the number of services that are read at a time.
const readAhead = 64

// A reader reads services and writes them to the table. The loop of follow owns it.
type reader struct {
	*Source
	table         *registry.Table
	scopes        []*scope
	watched       map[serviceKey]*watchedService
	documents     documents
	tableWriter   *registry.TableWriter
	marks         registry.Reported // the unknown scopes and services
	marksOutdated bool              // marks may have to change

	// For one connection.
	cn             *conn
	inbox          *inbox
	requests       *requests
	pending        int  // number of services for which the first read waits
	synced         bool // the first read is complete
	interestSynced bool // the names of Interest are subscribed
	throttled      int
	resume         time.Time // of requests, after the server throttled them
}

// A scope is the state of one namespace and group.
type scope struct {
	Scope
	watched map[string]*watchedService
	failing map[*watchedService]struct{}

	listed, asking bool
	fails          int
	due            time.Time
	err            error // of the last list
}

func newReader(s *Source, table *registry.Table) *reader {
	r := &reader{
		Source: s, table: table, watched: make(map[serviceKey]*watchedService), documents: newDocuments(s.opts, table),
	}
	r.tableWriter = registry.NewTableWriter(table, s.opts.Interest, r.stateOf)
	for _, at := range s.opts.Scopes {
		r.scopes = append(r.scopes, &scope{
			Scope: at, watched: make(map[string]*watchedService), failing: make(map[*watchedService]struct{}),
		})
	}
	return r
}

func (r *reader) begin(cn *conn) {
	r.cn, r.pending, r.synced, r.interestSynced, r.throttled, r.resume = cn, 0, false, false, 0, time.Time{}
	r.requests = newRequests(readAhead, len(r.scopes), r.opts.VerifyInterval)
	for _, s := range r.scopes {
		s.listed, s.asking, s.fails, s.due = false, false, 0, time.Time{}
		for _, w := range s.watched {
			w.renew()
		}
	}
}

// follow reads everything and then follows changes until the connection ends, and returns why
// it ended.
func (r *reader) follow(ctx context.Context, cn *conn, ended <-chan error) error {
	r.begin(cn)
	ctx, cancel := context.WithCancel(ctx)
	r.documents.connect(cn)
	defer r.documents.Wait()
	defer r.requests.Wait()
	defer cancel()
	const step = 250 * time.Millisecond
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for {
		r.start(ctx)
		r.documents.Start(ctx, time.Now())
		r.publish()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case handle := <-r.requests.answers:
			handle()
		case result := <-r.documents.Results():
			r.fetched(result)
		case <-r.inbox.ready:
			r.pushes()
		case <-r.opts.Interest.Changed():
			r.interestSynced = false
		case <-ticker.C:
			r.requests.enqueueDue(r.watched)
		}
		r.requests.drain()
	}
}

// start starts the requests that are due.
func (r *reader) start(ctx context.Context) {
	t := time.Now()
	if t.Before(r.resume) {
		return
	}
	r.syncInterest()
	for _, s := range r.scopes {
		if r.opts.Interest == nil && !s.asking && !s.due.After(t) {
			s.asking = true
			r.requests.start(func() func() {
				names, err := listNames(ctx, r.cn, s.Namespace, s.Group)
				return func() { r.listed(s, names, err) }
			})
		}
	}
	for w := r.requests.next(); w != nil; w = r.requests.next() {
		if w.leaving {
			r.leave(ctx, w)
		} else {
			r.ask(ctx, w)
		}
	}
}

// ask reads a service next to the loop.
func (r *reader) ask(ctx context.Context, w *watchedService) {
	w.asked = time.Now()
	before := w.stamp
	r.requests.start(func() func() {
		t, err := r.readService(ctx, w.key)
		return func() {
			r.requests.running--
			if w.asking = false; r.watched[w.key] != w {
				return // it was removed meanwhile
			}
			r.answered(w, t, before, err)
			if w.again {
				w.again = false
				r.requests.schedule(w, shortly)
			}
		}
	})
}

// readService subscribes a service and returns its content. For a protected service it also
// requests which instances are healthy. Consumers, which have an Interest, call the other
// instances as well.
func (r *reader) readService(ctx context.Context, k serviceKey) (snapshot, error) {
	info, err := subscribe(ctx, r.cn, k)
	if err != nil {
		return snapshot{}, err
	}
	if r.opts.Interest != nil {
		info.ReachProtectionThreshold = false
	}
	if !info.ReachProtectionThreshold {
		return newSnapshot(info), nil
	}
	healthy, err := queryHealthy(ctx, r.cn, k)
	if err != nil {
		return snapshot{}, fmt.Errorf("%w: %w", errProtected, err)
	}
	info.ReachProtectionThreshold = false
	for i := range info.Hosts {
		h := &info.Hosts[i]
		h.Healthy = slices.ContainsFunc(healthy.Hosts, func(o model.Instance) bool {
			return o.Ip == h.Ip && o.Port == h.Port && o.ClusterName == h.ClusterName
		})
		info.ReachProtectionThreshold = info.ReachProtectionThreshold || !h.Healthy
	}
	return newSnapshot(info), nil
}

// leave ends the subscription of a removed service. Until then the service is watched, so that
// a new service of its name is not subscribed before.
func (r *reader) leave(ctx context.Context, w *watchedService) {
	r.requests.start(func() func() {
		err := unsubscribe(ctx, r.cn, w.key)
		return func() {
			r.requests.running--
			if err != nil {
				r.log.Debug("subscription not ended", "service", w.key.name, "err", err)
			}
			if r.watched[w.key] == w {
				r.remove(w)
			}
			r.interestSynced = false // the name may have been added again
		}
	})
}

// connection reads and follows a server over one connection, and returns why it ended.
func (r *reader) connection(ctx context.Context, cn *conn) error {
	c := r.client
	select {
	case <-r.rechecks: // this connection reads everything
	default:
	}
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

// awaitRecheck ends a connection when Recheck is called.
func (r *reader) awaitRecheck(ctx context.Context, end context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
	case <-r.rechecks:
		end(errRecheck)
	}
}
