package debug

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// loadShare bounds the share of its time that a replica spends on our requests while many
// clients are read: the pause after each response is three times the response's duration.
const loadShare = 0.25

// clientAttempts is how often a client is requested whose id is part of other ids. istiod
// returns any one of the matching clients.
const clientAttempts = 4

// retryInterval is the wait before an unreadable client is read again.
const retryInterval = 10 * time.Minute

// reading is the result of reading one replica. It is immutable.
type reading struct {
	*clientList

	readAt    time.Time     // when the read began
	minUptime time.Duration // the replica has been up at least that long
}

// poller reads one replica. It is owned by its goroutine.
//
// The metadata of a connection never changes. So the poller reads the page `connections`,
// which is short, and then only the clients that it does not know. The whole page `adsz` is
// much longer, because it lists what every client watches.
type poller struct {
	// Immutable.
	o       *Options
	replica string

	transport

	lastReading *reading // nil: none

	// knownClients are the clients of lastReading, or those that were read before the last
	// read failed.
	knownClients map[string]*connectedClient
}

// pollResult is the result of one read: a reading or an error.
type pollResult struct {
	replica   *polledReplica
	reading   *reading // the same pointer as before if nothing changed
	startedAt time.Time
	err       error
}

// run reads the replica every interval until ctx ends.
func (p *poller) run(ctx context.Context, r *polledReplica, results chan<- pollResult) {
	defer p.close()
	Repeat(ctx, func() time.Duration {
		start := time.Now()
		reading, err := p.read(ctx)
		select {
		case <-ctx.Done():
		case results <- pollResult{replica: r, reading: reading, startedAt: start, err: err}:
		}
		return p.o.Interval
	})
}

// read reads the replica. It returns the same pointer as before if nothing changed. Clients
// that were read before a failure are not read again.
func (p *poller) read(ctx context.Context) (*reading, error) {
	start := time.Now()
	list, err := p.request(ctx, "connections", "connections")
	switch {
	case hasCause(err, NotServed), hasCause(err, NotAnswer):
		return p.readAll(ctx) // its error tells whether any page is served
	case err != nil:
		return nil, err
	}
	kept, unread := p.selectUnread(list)
	if len(unread) == 0 && p.lastReading != nil && len(kept) == len(p.lastReading.clients) {
		return p.lastReading, nil
	}
	ambiguous, err := p.readEach(ctx, unread, kept)
	if err != nil {
		return nil, err
	}
	if len(ambiguous) > 0 {
		if err := p.readAmbiguous(ctx, ambiguous, kept); err != nil {
			return nil, err
		}
	}
	list.clients = kept
	return p.accept(list, start), nil
}

// selectUnread divides the listed clients into those that are known and those that have to be
// read. An unreadable client has to be read again after retryInterval.
func (p *poller) selectUnread(list *clientList) (kept map[string]*connectedClient, unread []*connectedClient) {
	kept = make(map[string]*connectedClient, len(list.clients))
	if list.nameless > 0 { // each may be any of the missing clients
		maps.Copy(kept, p.knownClients)
	}
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(list.clients)) {
		c, known := list.clients[id], p.knownClients[id]
		switch {
		case slices.Contains(p.o.OwnNodes, c.node):
			kept[id] = c // its keys are skipped
		case known == nil || !known.connectedAt.Equal(c.connectedAt):
			delete(kept, id)
			unread = append(unread, c)
		case known.unread != nil && !now.Before(known.retryAt):
			unread = append(unread, c)
		default:
			kept[id] = known
		}
	}
	return kept, unread
}

// readEach reads clients into kept, with one request each. It returns the clients for which
// istiod returned only others.
func (p *poller) readEach(
	ctx context.Context, clients []*connectedClient, kept map[string]*connectedClient,
) (ambiguous []*connectedClient, err error) {
	p.knownClients = maps.Clone(kept)
	for i, c := range clients {
		start := time.Now()
		found, err := p.readClient(ctx, c)
		switch {
		case hasCause(err, NotServed):
			continue // it has disconnected
		case err != nil:
			return nil, err
		case found == nil:
			ambiguous = append(ambiguous, c)
		default:
			kept[c.id], p.knownClients[c.id] = found, found
		}
		if i+1 < len(clients) && !pauseAfter(ctx, time.Since(start)) {
			return nil, ctx.Err()
		}
	}
	return ambiguous, nil
}

// pauseAfter waits until the duration of a response is only loadShare of the elapsed time. It
// returns false if ctx has ended.
func pauseAfter(ctx context.Context, duration time.Duration) bool {
	registry.Sleep(ctx, time.Duration(float64(duration)*(1/loadShare-1)))
	return ctx.Err() == nil
}

// readClient reads one client. It returns nil if istiod returned only others, whose ids
// contain the id of the client.
func (p *poller) readClient(ctx context.Context, c *connectedClient) (*connectedClient, error) {
	for range clientAttempts {
		r, err := p.request(ctx, "client", "adsz?proxyID="+url.QueryEscape(c.id))
		if hasCause(err, TooLarge) {
			return unreadable(c, err), nil
		}
		if err != nil {
			return nil, err
		}
		if found := r.clients[c.id]; found != nil {
			return found, nil
		}
	}
	return nil, nil //nolint:nilnil // neither found nor failed
}

// unreadable returns a copy of a client that cannot be read, and therefore may publish any key.
func unreadable(c *connectedClient, err error) *connectedClient {
	u := *c
	u.unread, u.retryAt = err, time.Now().Add(retryInterval)
	u.publication = &metadata.Publication{Client: c.id, Unread: true}
	u.skipped = []metadata.PublicationError{{Client: c.id, Text: naming.Quote(c.id), Reason: err.Error()}}
	return &u
}

// readAmbiguous reads ambiguous clients into kept, from the list of all clients. If that is too
// large, they are unreadable.
func (p *poller) readAmbiguous(
	ctx context.Context, ambiguous []*connectedClient, kept map[string]*connectedClient,
) error {
	all, err := p.request(ctx, "adsz", "adsz")
	if err != nil && !hasCause(err, TooLarge) {
		return err
	}
	for _, c := range ambiguous {
		switch {
		case err != nil:
			kept[c.id] = unreadable(c, err)
		case all.clients[c.id] != nil:
			kept[c.id] = all.clients[c.id]
		}
	}
	return nil
}

// readAll reads the list of all clients, for a replica that does not serve `connections`.
func (p *poller) readAll(ctx context.Context) (*reading, error) {
	start := time.Now()
	r, err := p.request(ctx, "adsz", "adsz")
	if err != nil {
		return nil, err
	}
	if r.nameless > 0 { // each may be any of the missing clients
		for id, c := range p.knownClients {
			if r.clients[id] == nil {
				r.clients[id] = c
			}
		}
	}
	return p.accept(r, start), nil
}

// accept records a list as the last reading.
func (p *poller) accept(r *clientList, at time.Time) *reading {
	next := &reading{clientList: r, readAt: at}
	for _, c := range r.clients {
		if age := r.clock.Sub(c.connectedAt); !c.connectedAt.IsZero() && age > next.minUptime {
			next.minUptime = age
		}
	}
	p.lastReading, p.knownClients = next, r.clients
	return next
}

// request requests a page within the timeout, and reports an observation. name is the name of
// the query in the observation. The error is an *Error.
func (p *poller) request(ctx context.Context, name, query string) (*clientList, error) {
	limited, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	start := time.Now()
	var r *clientList
	err := p.get(limited, query, func(body io.Reader, clock time.Time) error {
		var err error
		r, err = (&clientListDecoder{p.o}).decode(body)
		if clock.After(r.clock) {
			r.clock = clock
		}
		return err
	})
	o := Observation{Replica: p.replica, Query: name, Duration: time.Since(start)}
	if r != nil {
		o.Bytes, o.Clients = r.bytes, len(r.clients)
	}
	if err != nil {
		e, known := errors.AsType[*Error](err)
		switch {
		case known:
		case limited.Err() != nil:
			e = &Error{Cause: Slow, Err: errors.New("no complete response in time")}
		default:
			e = &Error{Cause: causeOf(err), Err: err}
		}
		e.Where = p.where(query)
		o.Err, r = e, nil
	}
	if ctx.Err() == nil {
		p.o.Observe(o)
	}
	return r, o.Err
}

func hasCause(err error, cause Cause) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Cause == cause
}
