package client

import (
	"errors"
	"fmt"
	"sync"
)

// Pool has the clients of a process by their URLs, so that its parts that name the
// same registry share one. The zero value has none.
type Pool struct {
	mu      sync.Mutex
	clients map[string]*Client
	added   map[string]*Client
}

// Add returns what Open returns a client for from now on, in place of a URL. Close
// leaves it open.
func (p *Pool) Add(c *Client) (name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.added == nil {
		p.added = make(map[string]*Client)
	}
	name = fmt.Sprintf("%p", c)
	p.added[name] = c
	return name
}

// Open returns the client of a URL as FromURL reads it, a new one where there is none
// or it was closed. The error says what is wrong with the URL.
func (p *Pool) Open(url string, o Options) (*Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.added[url]; c != nil {
		return c, nil
	}
	if c := p.clients[url]; c != nil && !errors.Is(c.Status().Err, ErrClosed) {
		return c, nil
	}
	b, err := FromURL(url, o.Log)
	if err != nil {
		return nil, err
	}
	c, err := New(b, o)
	if err != nil {
		return nil, err
	}
	if p.clients == nil {
		p.clients = make(map[string]*Client)
	}
	p.clients[url] = c
	return c, nil
}

// Close closes all of them.
func (p *Pool) Close() {
	p.mu.Lock()
	all := p.clients
	p.clients = nil
	p.mu.Unlock()
	var closing sync.WaitGroup
	for _, c := range all {
		closing.Go(c.Close)
	}
	closing.Wait()
}
