package debug

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/url"
	"time"
)

// What a reading of single clients costs, against one of all: the overhead of
// a question in bytes, and the most questions in a row.
const (
	singleOverhead = 2 << 10
	maxSingles     = 32
)

// part is what one replica told of its clients. It is never written once read.
type part struct {
	*answer
	at  time.Time     // when it was read
	age time.Duration // the least time for which the replica has been up
}

// poller reads one replica. The metadata of a connection never changes, so
// `connections`, which is short, tells whether anything is new.
type poller struct {
	o       *Options
	replica string
	transport
	last     *part
	fullAt   time.Time
	fullSize int64
}

// read returns the present part; the same pointer as before where nothing
// changed.
func (p *poller) read(ctx context.Context) (*part, error) {
	if p.last == nil || time.Since(p.fullAt) >= p.o.FullInterval {
		return p.readAll(ctx)
	}
	listed, err := p.question(ctx, "connections", "connections")
	switch {
	case err == nil:
	case causeIs(err, NotServed), causeIs(err, NotAnswer):
		return p.readAll(ctx) // which says whether anything is served
	default:
		return nil, err
	}
	kept, fresh := p.compare(listed)
	switch {
	case listed.nameless > 0, p.last.nameless > 0, !p.cheap(len(fresh)):
		return p.readAll(ctx)
	case len(fresh) == 0 && len(kept) == len(p.last.clients):
		return p.last, nil
	}
	whole, err := p.readSingles(ctx, fresh, kept)
	switch {
	case err != nil:
		return nil, err
	case !whole:
		return p.readAll(ctx)
	}
	listed.clients = kept
	return p.take(listed), nil
}

// compare returns the listed clients that are known and the ids of the others.
func (p *poller) compare(listed *answer) (kept map[string]*client, fresh []string) {
	kept = make(map[string]*client, len(listed.clients))
	for id, c := range listed.clients {
		if known := p.last.clients[id]; known != nil && known.connectedAt.Equal(c.connectedAt) {
			kept[id] = known
		} else {
			fresh = append(fresh, id)
		}
	}
	return kept, fresh
}

// cheap reports whether n single clients cost less than half of all.
func (p *poller) cheap(n int) bool {
	each := singleOverhead + p.fullSize/int64(max(1, len(p.last.clients)))
	return n <= maxSingles && int64(n)*each <= p.fullSize/2
}

// readSingles adds clients to kept, one question each. istiod looks for the
// first connection that contains the id, so the answer may be another's: then
// the singles do not lead to the whole.
func (p *poller) readSingles(ctx context.Context, ids []string, kept map[string]*client) (whole bool, err error) {
	for _, id := range ids {
		a, err := p.question(ctx, "client", "adsz?proxyID="+url.QueryEscape(id))
		if causeIs(err, NotServed) {
			continue // it went in between
		}
		if err != nil {
			return false, err
		}
		c := a.clients[id]
		if c == nil {
			return false, nil
		}
		kept[id] = c
	}
	return true, nil
}

func (p *poller) readAll(ctx context.Context) (*part, error) {
	a, err := p.question(ctx, "adsz", "adsz")
	if err != nil {
		return nil, err
	}
	if a.nameless > 0 && p.last != nil {
		// Whoever is missing may be one of those that cannot be told.
		missing := maps.Clone(p.last.clients)
		maps.Copy(missing, a.clients)
		a.clients = missing
	}
	p.fullAt, p.fullSize = time.Now(), a.bytes
	return p.take(a), nil
}

func (p *poller) take(a *answer) *part {
	next := &part{answer: a, at: time.Now()}
	for _, c := range a.clients {
		if age := a.clock.Sub(c.connectedAt); !c.connectedAt.IsZero() && age > next.age {
			next.age = age
		}
	}
	p.last = next
	return next
}

// question asks within the timeout, reports what became of it, and says where
// it went wrong.
func (p *poller) question(ctx context.Context, name, query string) (*answer, error) {
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
		if _, told := errors.AsType[*fault](err); !told && limited.Err() != nil {
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
