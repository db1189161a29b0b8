package adapter

import (
	"errors"
	"fmt"
	"sync"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// Pool holds the clients of a process by URL, so that parts that use the same registry share a
// client. The zero value is empty.
type Pool struct {
	mu      sync.Mutex
	clients map[string]*client.Client
	added   map[string]*client.Client // by the names that Add returned
}

// Add adds a client that Open returns for the name, instead of a URL. Close does not close it.
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

// Open returns the client of a URL of client.Open. It makes a new one if there is none or if the
// last one was closed. The error says what is wrong with the URL.
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

// Close closes the clients that Open made. Each logs what it could not withdraw.
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
