package debug

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
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
	known    chan struct{} // closed once there are any; made by who comes first
}

// Set replaces the replicas. An empty list is kept out: while nothing is known
// of istiod, the last known ones are asked.
func (e *Endpoints) Set(replicas []string) {
	if len(replicas) == 0 {
		return
	}
	known := e.ready()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.replicas == nil {
		close(known)
	}
	e.replicas = slices.Clone(replicas)
}

// ready returns what is closed once there are replicas.
func (e *Endpoints) ready() chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known == nil {
		e.known = make(chan struct{})
	}
	return e.known
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

// Patience is how long the endpoints of istiod's own service are waited for
// before its address is asked instead, behind which one replica answers.
const Patience = 20 * time.Second

// Behind lists the replicas behind a name as DNS does, host or host:port, but
// every one of them: those that are known, at whichever port. While none is known it waits for
// them until wait has passed since the first call, and asks the resolver from
// then on. What it returns is for one goroutine.
func (e *Endpoints) Behind(resolver Lookup, name string, wait time.Duration) func(context.Context) ([]string, error) {
	resolved := DNS(resolver, name)
	_, port, _ := net.SplitHostPort(name) // or none
	var began time.Time
	return func(ctx context.Context) ([]string, error) {
		if began.IsZero() {
			began = time.Now()
		}
		left := time.NewTimer(time.Until(began.Add(wait)))
		defer left.Stop()
		select {
		case <-e.ready():
		case <-left.C:
		case <-ctx.Done():
		}
		found, err := e.Replicas(ctx)
		switch {
		case err != nil && time.Since(began) < wait:
			return nil, err
		case err != nil:
			return resolved(ctx)
		}
		for i, address := range found {
			host, _, err := net.SplitHostPort(address)
			switch {
			case err != nil: // it has no port
			case port == "":
				found[i] = host
			default:
				found[i] = net.JoinHostPort(host, port)
			}
		}
		return found, nil
	}
}

// ServiceOf returns istiod's own service, by its address as host:port, as the
// mesh of a cluster domain names it. It is false where the address is not the
// name of a Kubernetes Service.
func ServiceOf(address, domain string) (naming.HostAddress, bool) {
	host, port, noPort := net.SplitHostPort(address)
	service, noService := naming.ParseKubernetesHost(kubernetesHost(host, domain))
	at, err := naming.ParseHostAddress(net.JoinHostPort(service.String(), port))
	return at, errors.Join(noPort, noService, err) == nil
}

// kubernetesHost completes the short names that resolve within a cluster.
func kubernetesHost(host, domain string) string {
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	switch {
	case len(labels) == 2:
		return host + ".svc." + domain
	case len(labels) == 3 && labels[2] == "svc":
		return host + "." + domain
	}
	return host
}

// listing is what the lister found.
type listing struct {
	replicas []string
	err      error
}

// list asks for the replicas, sooner after a failure, until ctx ends.
func list(ctx context.Context, o *Options, listings chan<- listing) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		l := listOnce(ctx, o)
		select {
		case <-ctx.Done():
			return
		case listings <- l:
		}
		timer.Reset(o.Interval)
		if l.err != nil {
			timer.Reset(min(o.Interval, time.Second))
		}
	}
}

func listOnce(ctx context.Context, o *Options) listing {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	replicas, err := o.Replicas(ctx)
	if err == nil && len(replicas) == 0 {
		err = errors.New("no replica of istiod is listed")
	}
	if err != nil {
		return listing{err: &Error{Cause: NoReplicas, Where: "istiod", Err: err}}
	}
	return listing{replicas: replicas}
}
