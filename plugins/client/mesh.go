package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
	"github.com/xds-bridge/xds-bridge/registry/mesh/locate"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// MeshOptions say how a mesh is reached and as whom.
type MeshOptions struct {
	// Address is istiod's xDS address as host:port: 15010 in plaintext, 15012
	// with TLS.
	Address     string
	Credentials ads.Credentials

	// Identity is the pod's: name and namespace are required, its IP is where
	// instances are looked for. A type that is empty is sidecar.
	Identity ads.Identity

	// Host is the host address at which the mesh offers this process. Where it is
	// zero it is found by the endpoint of the first instance that is registered.
	Host naming.HostAddress

	// DebugAddresses are host:port of istiod's debug API over HTTP; none: over xDS
	// at Address where Credentials have TLS, and at Address's host otherwise.
	DebugAddresses []string

	// Interval is how often the service keys are read; 0: 5 s.
	Interval time.Duration

	Allow []netip.Prefix // as in mesh.Options; 127.0.0.0/8 in tests
	Log   *slog.Logger   // nil: nothing is logged
}

// Mesh returns the mesh as a backend: what is provided is published to every
// replica of istiod as service keys, of which any number is one stream, and what
// others provide is found by key, application or host, with its routes.
func Mesh(o MeshOptions) (Backend, error) {
	if o.Identity.Type == "" {
		o.Identity.Type = "sidecar"
	}
	node, err := o.Identity.Node()
	if err != nil {
		return Backend{}, fmt.Errorf("mesh: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	stream := ads.Options{Address: o.Address, Credentials: o.Credentials, Node: node, Log: o.Log}
	mapping, err := o.mapping(stream)
	if err != nil {
		return Backend{}, fmt.Errorf("mesh: %w", err)
	}
	interest := registry.NewInterest()
	all, err := naming.ParsePattern("*")
	if err != nil {
		return Backend{}, fmt.Errorf("mesh: %w", err)
	}
	source, err := mesh.New(mesh.Options{
		ADS: stream, Mapping: mapping, Allow: o.Allow, Log: o.Log,
		Naming: mesh.Naming{Plain: []naming.Pattern{all}, Subsets: true, Interest: interest},
	})
	if err != nil {
		return Backend{}, err //nolint:wrapcheck // it says mesh
	}
	publisher, err := o.publisher(stream)
	if err != nil {
		return Backend{}, fmt.Errorf("mesh: %w", err)
	}
	return Backend{
		Kind: "mesh", Source: source, Publisher: publisher,
		Interest: interest, Names: func(q Query) []string { return []string{q.text} },
		Routes: func(changed func(naming.HostAddress)) (*routes.Reader, error) { return routes.New(stream, changed) },
		Fault: func() error {
			s := source.Status()
			if s.Stream.Err != nil && !s.Stream.Connected {
				return fmt.Errorf("%w: %w", ErrUnreachable, s.Stream.Err)
			}
			return s.Mapping.Err
		},
	}, nil
}

// mapping makes the reader of the service keys.
func (o MeshOptions) mapping(stream ads.Options) (*debug.Reader, error) {
	d := debug.Options{Interval: o.Interval, Bridged: true, Log: o.Log}
	switch {
	case len(o.DebugAddresses) > 0:
		d.HTTP, d.Replicas = &debug.HTTPOptions{TokenFile: o.Credentials.TokenFile, Insecure: o.Credentials.Insecure}, debug.Static(o.DebugAddresses...)
	case o.Credentials.TLS != nil:
		d.XDS = &debug.XDSOptions{Node: stream.Node, Dial: o.dial}
		d.Replicas = debug.DNS(net.DefaultResolver, o.Address)
	default:
		host, _, err := net.SplitHostPort(o.Address)
		if err != nil {
			return nil, fmt.Errorf("address: %w", err)
		}
		d.HTTP, d.Replicas = &debug.HTTPOptions{TokenFile: o.Credentials.TokenFile, Insecure: o.Credentials.Insecure}, debug.DNS(net.DefaultResolver, host)
	}
	return debug.New(d) //nolint:wrapcheck // Mesh adds where it comes from
}

// dial connects to one replica of istiod.
func (o MeshOptions) dial(replica string) (grpc.ClientConnInterface, func(), error) {
	conn, err := ads.Dial(replica, o.Credentials, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(ads.DefaultMaxReceive)))
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it names the replica
	}
	return conn, func() { _ = conn.Close() }, nil
}

func (o MeshOptions) publisher(stream ads.Options) (*meshPublisher, error) {
	p, err := keys.New(keys.Options{
		Node: stream.Node, Provider: true, Dial: o.dial, Log: o.Log, Replicas: debug.DNS(net.DefaultResolver, o.Address),
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // Mesh adds where it comes from
	}
	return &meshPublisher{keys: p, stream: stream, host: o.Host, log: o.Log, wake: make(chan struct{}, 1)}, nil
}

// meshPublisher publishes the service keys of instances at the host address that
// this process has in the mesh.
type meshPublisher struct {
	keys   *keys.Publisher
	stream ads.Options
	host   naming.HostAddress // given, or zero
	log    *slog.Logger
	wake   chan struct{}

	mu     sync.Mutex
	wanted []Instance
	own    error // why the own host address is not known
}

// Set implements Publisher.
func (p *meshPublisher) Set(instances []Instance) {
	p.mu.Lock()
	p.wanted = instances
	p.mu.Unlock()
	p.again()
}

// Fault implements Publisher.
func (p *meshPublisher) Fault() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own != nil {
		return p.own
	}
	s := p.keys.Status()
	if s.Err != "" {
		return errors.New(s.Err)
	}
	for _, r := range s.Replicas {
		if r.Err != "" && !r.Connected {
			return fmt.Errorf("service keys at %s: %s", r.Replica, r.Err)
		}
	}
	return nil
}

// Run implements Publisher. What istiod shows ends with the stream, so nothing
// has to be taken back.
func (p *meshPublisher) Run(ctx context.Context, _ time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.keys.Run(ctx) }()
	p.follow(ctx)
	return <-ended
}

// follow publishes what is wanted, each instance once it is known where it is.
func (p *meshPublisher) follow(ctx context.Context) {
	at := make(map[string]naming.HostAddress) // by address of the instance
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		p.mu.Lock()
		wanted := p.wanted
		p.mu.Unlock()
		hosts := make(map[naming.ServiceKey]naming.HostAddress)
		var missing []Instance
		for _, i := range wanted {
			a, ok := at[i.Address()]
			if p.host.Host != "" {
				a, ok = p.host, true
			}
			if !ok {
				missing = append(missing, i)
				continue
			}
			for _, k := range i.Keys() {
				hosts[k] = a
			}
		}
		p.keys.Set(hosts)
		if len(missing) > 0 {
			p.locate(ctx, missing[0], at)
		}
	}
}

// locate searches for the host address of an instance until it is found or
// something else is wanted, and has what is wanted looked at again.
func (p *meshPublisher) locate(ctx context.Context, i Instance, at map[string]naming.HostAddress) {
	ip, err := netip.ParseAddr(i.Host)
	if err != nil {
		return // Register refuses it
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan naming.HostAddress, 1)
	go func() {
		defer close(found)
		if a, err := locate.Find(ctx, locate.Options{ADS: p.stream, IP: ip, Port: i.Port, Tell: p.unknown}); err == nil {
			found <- a
		}
	}()
	select {
	case a, ok := <-found:
		if ok {
			at[i.Address()] = a
			p.log.Info("own host address found", "instance", i.Address(), "host_address", a.String())
		}
	case <-p.wake:
		cancel()
		<-found
	}
	p.unknown(nil)
	p.again()
}

// unknown notes why the own host address is not known, nil where it is, and logs
// the first reason.
func (p *meshPublisher) unknown(err error) {
	p.mu.Lock()
	before := p.own
	p.own = nil
	if err != nil {
		p.own = fmt.Errorf("%w: %w", ErrOwnAddressUnknown, err)
		if !errors.Is(err, locate.ErrNoService) {
			p.own = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
	p.mu.Unlock()
	if err != nil && before == nil {
		p.log.Warn("service keys not published, trying on", "err", err)
	}
}

// again has what is wanted looked at once more.
func (p *meshPublisher) again() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
