package adapter

import (
	"errors"
	"fmt"
	"sync"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// Pool has the clients of a process by their URLs, so that its parts that name the
// same registry share one. The zero value has none.
type Pool struct {
	mu      sync.Mutex
	clients map[string]*client.Client
	added   map[string]*client.Client
}

// Add returns what Open returns a client for from now on, in place of a URL. Close
// leaves it open.
func (p *Pool) Add(c *client.Client) (name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.added == nil {
		p.added = make(map[string]*client.Client)
	}
	name = fmt.Sprintf("%p", c)
	p.added[name] = c
	return name
}

// Open returns the client of a URL as client.Open reads it, a new one where there is none
// or it was closed. The error says what is wrong with the URL.
func (p *Pool) Open(url string, o client.Options, kinds ...client.Kind) (*client.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.added[url]; c != nil {
		return c, nil
	}
	if c := p.clients[url]; c != nil && !errors.Is(c.Status().Err, client.ErrClosed) {
		return c, nil
	}
	c, err := client.Open(url, o, kinds...)
	if err != nil {
		return nil, err
	}
	if p.clients == nil {
		p.clients = make(map[string]*client.Client)
	}
	p.clients[url] = c
	return c, nil
}

// Close closes all of them. What each did not withdraw it logs.
func (p *Pool) Close() {
	p.mu.Lock()
	all := p.clients
	p.clients = nil
	p.mu.Unlock()
	var closing sync.WaitGroup
	for _, c := range all {
		closing.Go(func() { _ = c.Close() })
	}
	closing.Wait()
}
