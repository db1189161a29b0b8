package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Leases are the clients of a process by their URLs: its parts that name the same
// registry share one, which is made for the first that uses it and closed after
// the last. The zero value has none.
type Leases struct {
	mu   sync.Mutex
	open map[string]*leased
}

type leased struct {
	client *Client
	leases int
}

// Lease returns the use of the client of a URL as FromURL takes it. The error says
// what is wrong with the URL; nothing is connected to before it is used.
func (s *Leases) Lease(url string, o Options) (*Lease, error) {
	b, err := FromURL(url, o.Log)
	if err != nil {
		return nil, err
	}
	return &Lease{
		take: func() (*Client, error) { return s.take(url, b, o) },
		give: func() { s.give(url) },
	}, nil
}

func (s *Leases) take(url string, b Backend, o Options) (*Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.open[url]
	if one == nil {
		c, err := New(b, o)
		if err != nil {
			return nil, err
		}
		one = &leased{client: c}
		if s.open == nil {
			s.open = make(map[string]*leased)
		}
		s.open[url] = one
	}
	one.leases++
	return one.client, nil
}

func (s *Leases) give(url string) {
	s.mu.Lock()
	one, last := s.open[url], false
	if one != nil { // or Close was first
		one.leases--
		if last = one.leases == 0; last {
			delete(s.open, url)
		}
	}
	s.mu.Unlock()
	if last {
		one.client.Close()
	}
}

// Close closes all clients, whoever has a lease of them: the process ends.
func (s *Leases) Close() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	var closing sync.WaitGroup
	for _, one := range open {
		closing.Go(one.client.Close)
	}
	closing.Wait()
}

// LeaseOf returns the use of a client that stays its owner's.
func LeaseOf(c *Client) *Lease {
	return &Lease{take: func() (*Client, error) { return c, nil }, give: func() {}}
}

// Lease is a client in the hands of one part of a process, from the first use on.
// Close ends what this part began, and no more.
type Lease struct {
	take func() (*Client, error)
	give func()

	mu       sync.Mutex
	client   *Client // nil until it is used
	closed   bool
	provided map[string]Instance // by name, each interface by itself
	watches  map[*Watch]struct{}
	places   map[Query]map[placeKey]*Place
	drained  time.Time // when the last wait of Drain ends
	running  sync.WaitGroup
}

// Client returns the client, ErrClosed after Close.
func (l *Lease) Client() (c *Client, err error) {
	err = l.use(func(mine *Client) error {
		c = mine
		return nil
	})
	return c, err
}

// use does something with the client while the lease cannot be closed.
func (l *Lease) use(do func(*Client) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if l.client == nil {
		c, err := l.take()
		if err != nil {
			return err
		}
		l.client, l.provided, l.watches = c, make(map[string]Instance), make(map[*Watch]struct{})
		l.places = make(map[Query]map[placeKey]*Place)
	}
	return do(l.client)
}

// Register is Client.Register.
func (l *Lease) Register(i Instance) error {
	return l.use(func(c *Client) error {
		if err := c.Register(i); err != nil {
			return err
		}
		for _, one := range i.each() {
			l.provided[one.name()] = one
		}
		return nil
	})
}

// Provides reports whether all of an instance is registered by this lease.
func (l *Lease) Provides(i Instance) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(i.each(), func(one Instance) bool {
		_, there := l.provided[one.name()]
		return !there
	})
}

// Drain takes an instance back and waits until consumers no longer see it: limit
// at most, for all together that are drained one after the other. The error says
// why it may still be called.
func (l *Lease) Drain(i Instance, limit time.Duration) error {
	var client *Client
	var until time.Time
	err := l.use(func(c *Client) error {
		for _, one := range i.each() {
			delete(l.provided, one.name())
		}
		if now := time.Now(); now.After(l.drained.Add(limit)) {
			l.drained = now.Add(limit)
		}
		client, until = c, l.drained
		return nil
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	return client.Deregister(ctx, i)
}

// Resolve is Client.Resolve that waits for a limited time.
func (l *Lease) Resolve(q Query, limit time.Duration) (Snapshot, error) {
	c, err := l.Client()
	if err != nil {
		return Snapshot{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s, err := c.Resolve(ctx, q)
	if err != nil {
		return s, err
	}
	return l.placed(s), nil
}

// placed returns an answer with its places.
func (l *Lease) placed(s Snapshot) Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s = s.place(l.places[s.Query])
	if !l.closed {
		l.places[s.Query] = s.places
	}
	return s
}

// Follow hands every answer to tell until the watch is stopped or the lease closed,
// which waits for tell. That nothing is known is not told.
func (l *Lease) Follow(q Query, tell func(Snapshot)) (w *Watch, err error) {
	err = l.use(func(c *Client) error {
		w = c.Watch(q)
		l.watches[w] = struct{}{}
		l.running.Go(func() { l.follow(w, tell) })
		return nil
	})
	return w, err
}

func (l *Lease) follow(w *Watch, tell func(Snapshot)) {
	w.Follow(context.Background(), func(s Snapshot, err error) {
		if err == nil {
			tell(l.placed(s))
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watches, w)
}

// Close stops what is followed and takes back what is provided, without a wait for
// consumers, and gives the client back. It may be repeated.
func (l *Lease) Close() {
	l.mu.Lock()
	c, left, watches := l.client, slices.Collect(maps.Values(l.provided)), slices.Collect(maps.Keys(l.watches))
	l.closed, l.client, l.provided = true, nil, nil
	l.mu.Unlock()
	for _, w := range watches {
		w.Stop()
	}
	l.running.Wait()
	if c == nil {
		return
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits
	for _, i := range left {
		_ = c.Deregister(gone, i) // takes it back all the same
	}
	l.give()
}
