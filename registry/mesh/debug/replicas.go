package debug

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
)

// Static lists the same replicas for ever.
func Static(replicas ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) { return replicas, nil }
}

// Lookup is the part of net.Resolver that DNS needs.
type Lookup interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// DNS lists the addresses of a name, given as host or host:port. It finds
// every replica where the name is that of a headless Service; the name of any
// other leads to one replica at a time.
func DNS(resolver Lookup, name string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		host, port, err := net.SplitHostPort(name)
		if err != nil {
			host, port = strings.Trim(name, "[]"), ""
		}
		addresses, err := resolver.LookupHost(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("resolve %s: %w", host, err)
		}
		if port == "" {
			return addresses, nil
		}
		replicas := make([]string, 0, len(addresses))
		for _, address := range addresses {
			replicas = append(replicas, net.JoinHostPort(address, port))
		}
		return replicas, nil
	}
}

// Endpoints lists the replicas that someone else knows: the endpoints of
// istiod's own cluster, as xDS tells them. The zero value knows none yet. It
// is safe for concurrent use.
type Endpoints struct {
	mu       sync.Mutex
	replicas []string
}

// Set replaces the replicas. An empty list is kept out: while nothing is known
// of istiod, the last known ones are asked.
func (e *Endpoints) Set(replicas []string) {
	if len(replicas) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replicas = slices.Clone(replicas)
}

// Replicas is what Options.Replicas takes.
func (e *Endpoints) Replicas(context.Context) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.replicas) == 0 {
		return nil, errors.New("the endpoints of istiod are not known yet")
	}
	return slices.Clone(e.replicas), nil
}
