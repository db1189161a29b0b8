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
)

// share is how much of the time a replica works on our questions while many
// clients are read: as long as an answer took, three times that is waited.
const share = 0.25

// guesses is how often a client is asked for whose id other ids contain: istiod
// answers with any of them.
const guesses = 4

// part is what one replica reported of its clients. It is never written once read.
type part struct {
	*answer
	at  time.Time     // when it was read
	age time.Duration // the least time for which the replica has been up
}

// poller reads one replica. The metadata of a connection never changes, so that
// `connections`, which is short, tells whose is to be read; adsz as a whole,
// which lists what every client watches, is clients times services.
type poller struct {
	o       *Options
	replica string
	transport
	last  *part
	known map[string]*client // what was read of those listed last, or before a reading that failed
}

// read returns the present part; the same pointer as before where nothing
// changed. What was read before a failure is not read again.
func (p *poller) read(ctx context.Context) (*part, error) {
	began := time.Now()
	listed, err := p.request(ctx, "connections", "connections")
	switch {
	case causeIs(err, NotServed), causeIs(err, NotAnswer):
		return p.readAll(ctx) // which says whether anything is served
	case err != nil:
		return nil, err
	}
	kept, fresh := p.compare(listed)
	if len(fresh) == 0 && p.last != nil && len(kept) == len(p.last.clients) {
		return p.last, nil
	}
	vague, err := p.readSingles(ctx, fresh, kept)
	if err != nil {
		return nil, err
	}
	if len(vague) > 0 {
		if err := p.resolve(ctx, vague, kept); err != nil {
			return nil, err
		}
	}
	listed.clients = kept
	return p.accept(listed, began), nil
}

// compare returns the listed clients that are known and the others, by id. One
// that could not be read is asked for again now and then.
func (p *poller) compare(listed *answer) (kept map[string]*client, fresh []*client) {
	kept = make(map[string]*client, len(listed.clients))
	if listed.nameless > 0 { // whoever is missing may be one of those that cannot be known
		maps.Copy(kept, p.known)
	}
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(listed.clients)) {
		c, known := listed.clients[id], p.known[id]
		switch {
		case slices.Contains(p.o.OwnNodes, c.node):
			kept[id] = c // whose keys do not count
		case known == nil || !known.connectedAt.Equal(c.connectedAt):
			delete(kept, id)
			fresh = append(fresh, c)
		case known.unread != nil && !now.Before(known.again):
			fresh = append(fresh, c)
		default:
			kept[id] = known
		}
	}
	return kept, fresh
}

// readSingles adds clients to kept, one question each, and returns those that
// istiod answered for with others.
func (p *poller) readSingles(ctx context.Context, clients []*client, kept map[string]*client) (vague []*client, err error) {
	p.known = maps.Clone(kept)
	for i, c := range clients {
		began := time.Now()
		found, err := p.readSingle(ctx, c)
		switch {
		case causeIs(err, NotServed):
			continue // it went in between
		case err != nil:
			return nil, err
		case found == nil:
			vague = append(vague, c)
		default:
			kept[c.id], p.known[c.id] = found, found
		}
		if i+1 < len(clients) && !rest(ctx, time.Since(began)) {
			return nil, ctx.Err()
		}
	}
	return vague, nil
}

// rest waits until an answer that took so long is the share of all the time;
// false says that ctx ended.
func rest(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(time.Duration(float64(duration) * (1/share - 1)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// readSingle asks for one client; it returns none where istiod answered with
// another whose id contains this one's.
func (p *poller) readSingle(ctx context.Context, c *client) (*client, error) {
	for range guesses {
		a, err := p.request(ctx, "client", "adsz?proxyID="+url.QueryEscape(c.id))
		if causeIs(err, TooLarge) {
			return p.unread(c, err), nil
		}
		if err != nil {
			return nil, err
		}
		if found := a.clients[c.id]; found != nil {
			return found, nil
		}
	}
	return nil, nil //nolint:nilnil // neither found nor failed
}

// unread stands for a client that cannot be read: it may publish anything.
func (p *poller) unread(c *client, err error) *client {
	u := *c
	u.unread, u.again = err, time.Now().Add(p.o.RetryInterval)
	u.publication = &metadata.Publication{Client: c.id, Unread: true}
	u.skipped = []metadata.PublicationError{{Client: c.id, Text: naming.Quote(c.id), Reason: err.Error()}}
	return &u
}

// resolve adds clients that cannot be asked for one by one, from all of them
// where that is not too much.
func (p *poller) resolve(ctx context.Context, vague []*client, kept map[string]*client) error {
	all, err := p.request(ctx, "adsz", "adsz")
	if err != nil && !causeIs(err, TooLarge) {
		return err
	}
	for _, c := range vague {
		switch {
		case err != nil:
			kept[c.id] = p.unread(c, err)
		case all.clients[c.id] != nil:
			kept[c.id] = all.clients[c.id]
		}
	}
	return nil
}

// readAll reads a replica that lists no connections.
func (p *poller) readAll(ctx context.Context) (*part, error) {
	began := time.Now()
	a, err := p.request(ctx, "adsz", "adsz")
	if err != nil {
		return nil, err
	}
	if a.nameless > 0 { // whoever is missing may be one of those that cannot be known
		for id, c := range p.known {
			if a.clients[id] == nil {
				a.clients[id] = c
			}
		}
	}
	return p.accept(a, began), nil
}

// accept makes an answer the present part, as it was at a time.
func (p *poller) accept(a *answer, at time.Time) *part {
	next := &part{answer: a, at: at}
	for _, c := range a.clients {
		if age := a.clock.Sub(c.connectedAt); !c.connectedAt.IsZero() && age > next.age {
			next.age = age
		}
	}
	p.last, p.known = next, a.clients
	return next
}

// request asks within the timeout, reports what became of it, and says where
// it went wrong.
func (p *poller) request(ctx context.Context, name, query string) (*answer, error) {
	limited, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	start := time.Now()
	var a *answer
	err := p.ask(limited, query, func(body io.Reader, clock time.Time) error {
		d := decoder{maxBytes: p.o.MaxBytes, own: p.o.OwnNodes, legacy: p.o.Legacy, bridged: p.o.Bridged}
		var err error
		a, err = d.decode(body)
		if clock.After(a.clock) {
			a.clock = clock
		}
		return err
	})
	seen := Observation{Replica: p.replica, Query: name, Duration: time.Since(start)}
	if a != nil {
		seen.Bytes, seen.Clients = a.bytes, len(a.clients)
	}
	if err != nil {
		cause := causeOf(err)
		if _, told := errors.AsType[*causedError](err); !told && limited.Err() != nil {
			cause, err = Slow, errors.New("no whole answer in time")
		}
		seen.Err = &Error{Cause: cause, Where: p.where(query), Err: err}
		a = nil
	}
	if ctx.Err() == nil { // else nobody wants to know any more
		p.o.Observe(seen)
	}
	return a, seen.Err
}

func causeIs(err error, cause Cause) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Cause == cause
}

// result is what the poller of a replica found.
type result struct {
	replica string
	watch   *watch
	part    *part
	at      time.Time // when the reading began
	err     error
}

// poll reads one replica, at once and then at each interval, until ctx ends.
func poll(ctx context.Context, p *poller, w *watch, o *Options, results chan<- result) {
	defer p.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		start := time.Now()
		read, err := p.read(ctx)
		select {
		case <-ctx.Done():
			return
		case results <- result{replica: p.replica, watch: w, part: read, at: start, err: err}:
		}
		timer.Reset(o.Interval)
	}
}
