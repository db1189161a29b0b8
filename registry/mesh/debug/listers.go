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

// Lister lists the replicas of istiod, in the form of Options.Replicas.
type Lister = func(ctx context.Context) ([]string, error)

// Static returns a Lister that always lists the same replicas.
func Static(replicas ...string) Lister {
	return func(context.Context) ([]string, error) { return replicas, nil }
}

// Lookup is the part of net.Resolver that DNS uses.
type Lookup interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// DNS returns a Lister of the addresses of a name, which is host or host:port. A headless
// Service resolves to every replica, any other Service to one address that reaches one replica
// at a time.
func DNS(resolver Lookup, name string) Lister {
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

// Endpoints lists the endpoints of istiod's own cluster, as xDS reports them. The zero value is
// ready for use, and has none yet. It is safe for concurrent use.
type Endpoints struct {
	// Guarded by mu.
	mu       sync.Mutex
	replicas []string
	known    chan struct{} // closed once there are any; made by ready
}

// Set replaces the replicas. It ignores an empty list, so that the last known replicas are
// used while istiod is unreachable.
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

// ready returns a channel that is closed once there are replicas.
func (e *Endpoints) ready() chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known == nil {
		e.known = make(chan struct{})
	}
	return e.known
}

// Replicas is a Lister.
func (e *Endpoints) Replicas(context.Context) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.replicas) == 0 {
		return nil, errors.New("endpoints of istiod not known yet")
	}
	return slices.Clone(e.replicas), nil
}

// EndpointsTimeout is how long Behind should wait for the endpoints of istiod's own service.
// Its address is used after that, and reaches only one replica.
const EndpointsTimeout = 20 * time.Second

// Behind returns a Lister of the replicas behind a name, which is host or host:port. It lists
// the known endpoints, at the port of the name. While there are none, it waits until timeout
// has passed since the first call, and then resolves the name like DNS. The Lister is for one
// goroutine.
func (e *Endpoints) Behind(resolver Lookup, name string, timeout time.Duration) Lister {
	resolved := DNS(resolver, name)
	_, port, _ := net.SplitHostPort(name) // empty if the name has no port
	var start time.Time
	return func(ctx context.Context) ([]string, error) {
		if start.IsZero() {
			start = time.Now()
		}
		timer := time.NewTimer(time.Until(start.Add(timeout)))
		defer timer.Stop()
		select {
		case <-e.ready():
		case <-timer.C:
		case <-ctx.Done():
		}
		replicas, err := e.Replicas(ctx)
		switch {
		case err != nil && time.Since(start) < timeout:
			return nil, err
		case err != nil:
			return resolved(ctx)
		}
		for i, address := range replicas {
			host, _, err := net.SplitHostPort(address)
			switch {
			case err != nil: // it has no port
			case port == "":
				replicas[i] = host
			default:
				replicas[i] = net.JoinHostPort(host, port)
			}
		}
		return replicas, nil
	}
}

// ServiceOf returns the host address of istiod's own service. address is host:port, domain that
// of the cluster. It returns false if address is not the name of a Kubernetes Service.
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
