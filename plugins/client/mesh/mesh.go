// Package mesh makes an Istio mesh the registry of an application.
package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry"
	source "github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
	"github.com/xds-bridge/xds-bridge/registry/mesh/locate"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// Options say how a client connects to a mesh, and as which pod.
type Options struct {
	// Address is istiod's xDS address as host:port. The port is 15010 for plaintext and
	// 15012 for TLS.
	Address     string
	Credentials ads.Credentials

	// Identity is that of the pod. Name and namespace are required; instances are located by
	// the IP. An empty type means sidecar.
	Identity ads.Identity

	// Host is the host address at which the mesh offers this process. Zero: it is located by
	// the endpoint of the first registered instance.
	Host naming.HostAddress

	// DebugAddresses are host:port of istiod's debug API over HTTP. None: over xDS at Address
	// if Credentials have TLS, otherwise over HTTP at the host of Address.
	DebugAddresses []string

	// Interval is how often the service keys are read; 0: 5 s.
	Interval time.Duration

	Allow []netip.Prefix // as in source.Options; 127.0.0.0/8 in tests
	Log   *slog.Logger   // nil: nothing is logged
}

// New returns the mesh as a backend. It publishes to every replica of istiod, as service keys;
// all keys share one stream. It finds what others provide by key, application or host, with the
// routes.
func New(o Options) (client.Backend, error) {
	if o.Identity.Type == "" {
		o.Identity.Type = "sidecar"
	}
	node, err := o.Identity.Node()
	if err != nil {
		return client.Backend{}, fmt.Errorf("mesh: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if tls := o.Credentials.TLS; tls != nil { // certificates do not contain the addresses by which replicas are called
		host, _, _ := net.SplitHostPort(o.Address)
		named := *tls
		named.ServerName = cmp.Or(tls.ServerName, host)
		o.Credentials.TLS = &named
	}
	i := &istiod{Options: o, resolver: net.DefaultResolver, connect: o.dial}
	i.stream = ads.Options{Address: o.Address, Credentials: o.Credentials, Node: node, Log: o.Log}
	return i.backend()
}

// replicaWait is how long a client waits for the other replicas of istiod before it continues
// with those that it knows.
const replicaWait = 5 * time.Second

// istiod is the control plane that a mesh is read from and published to, with all replicas.
type istiod struct {
	Options
	stream   ads.Options
	replicas debug.Endpoints // as the mesh reports them
	resolver debug.Lookup
	connect  func(replica string) (grpc.ClientConnInterface, func(), error)
}

func (i *istiod) backend() (client.Backend, error) {
	all, err := naming.ParsePattern("*")
	if err != nil {
		return client.Backend{}, fmt.Errorf("mesh: %w", err)
	}
	interest := registry.NewInterest()
	o := source.Options{
		ADS: i.stream, Allow: i.Allow, Log: i.Log, Replicas: i.replicas.Set,
		Naming: source.Naming{Plain: []naming.Pattern{all}, Subsets: true, Interest: interest},
	}
	wait := time.Duration(0)
	if service, ok := debug.ServiceOf(i.Address, cmp.Or(i.Identity.Domain, "cluster.local")); ok {
		o.Istiod, wait = service, replicaWait
	}
	if o.Mapping, err = i.mapping(wait); err != nil {
		return client.Backend{}, fmt.Errorf("mesh: %w", err)
	}
	reader, err := source.New(o)
	if err != nil {
		return client.Backend{}, err
	}
	publisher, err := i.publisher(wait)
	if err != nil {
		return client.Backend{}, fmt.Errorf("mesh: %w", err)
	}
	place := cmp.Or(i.Identity.Cluster, "Kubernetes") + "/" + i.Identity.Namespace
	b := client.Backend{
		Kind:   "mesh",
		Place:  client.PlaceOf(seam.Key{}, "mesh", []string{i.Address}, place, ""),
		Source: reader, Recheck: reader.Recheck, Publisher: publisher, WatchWith: publisher.watchWith,
		Interest: interest, Names: func(q client.Query) []string { return []string{client.TextOf(seam.Key{}, q)} },
		Routes: func(changed func(naming.HostAddress)) (client.Routes, error) {
			r, err := routes.New(i.stream, changed)
			return routeTables{r}, err
		},
		Err: func() error {
			s := reader.Status()
			if s.Stream.Err != nil && !s.Stream.Connected {
				return fmt.Errorf("%w: %w", client.ErrUnreachable, s.Stream.Err)
			}
			return s.Mapping.Err
		},
	}
	b.Once()
	return b, nil
}

// routeTables implements client.Routes by a reader of routes.
type routeTables struct{ *routes.Reader }

// Get implements client.Routes.
func (t routeTables) Get(host naming.HostAddress) client.Router {
	if table := t.Reader.Get(host); table != nil {
		return table
	}
	return nil
}

// withCause wraps the reason why an own host address is unknown with its cause.
func withCause(err error) error {
	if errors.Is(err, locate.ErrNoService) {
		return fmt.Errorf("%w: %w", client.ErrOwnAddressUnknown, err)
	}
	return client.Caused(seam.Key{}, err, client.ErrUnreachable)
}

// mapping returns the reader of the service keys.
func (i *istiod) mapping(wait time.Duration) (*debug.Reader, error) {
	d := debug.Options{Interval: i.Interval, Bridged: true, Log: i.Log}
	switch {
	case len(i.DebugAddresses) > 0:
		d.HTTP, d.Replicas = i.overHTTP(), debug.Static(i.DebugAddresses...)
	case i.Credentials.TLS != nil:
		d.XDS = &debug.XDSOptions{Node: i.stream.Node, Dial: i.connect}
		d.Replicas = i.replicas.Behind(i.resolver, i.Address, wait)
	default:
		host, _, err := net.SplitHostPort(i.Address)
		if err != nil {
			return nil, fmt.Errorf("address: %w", err)
		}
		d.HTTP, d.Replicas = i.overHTTP(), i.replicas.Behind(i.resolver, host, wait)
	}
	return debug.New(d)
}

func (i *istiod) overHTTP() *debug.HTTPOptions {
	return &debug.HTTPOptions{TokenFile: i.Credentials.TokenFile, Insecure: i.Credentials.Insecure}
}

// dial connects to one replica of istiod.
func (o Options) dial(replica string) (grpc.ClientConnInterface, func(), error) {
	unlimited := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(ads.DefaultMaxReceive))
	conn, err := ads.Dial(replica, o.Credentials, unlimited)
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

func (i *istiod) publisher(wait time.Duration) (*meshPublisher, error) {
	p, err := keys.New(keys.Options{
		Node: i.stream.Node, Provider: true, Dial: i.connect, Log: i.Log,
		Replicas: i.replicas.Behind(i.resolver, i.Address, wait),
	})
	if err != nil {
		return nil, err
	}
	return newMeshPublisher(p, i.stream, i.Options), nil
}

// meshPublisher publishes the service keys of instances at the host addresses of this process
// in the mesh. There is one host address for each port of a Service.
type meshPublisher struct {
	// Immutable once Run starts.
	keys   *keys.Publisher
	stream ads.Options
	host   naming.HostAddress // Options.Host
	log    *slog.Logger
	watch  func(client.Query) *client.Watch // Client.Watch; nil: there is no source
	wake   chan struct{}

	mu        sync.Mutex
	desired   []client.Instance
	unlocated map[string]error // why the host address is unknown, by address of the instance
	conflicts map[string]error // why some keys do not lead to an instance, by its name
	wrote     bool             // as Publisher.Wrote reports
}

func newMeshPublisher(k *keys.Publisher, stream ads.Options, o Options) *meshPublisher {
	return &meshPublisher{
		keys: k, stream: stream, host: o.Host, log: o.Log,
		wake: make(chan struct{}, 1), unlocated: make(map[string]error),
	}
}

// watchWith implements client.Backend.WatchWith.
func (p *meshPublisher) watchWith(c *client.Client) { p.watch = c.Watch }

// Set implements Publisher.
func (p *meshPublisher) Set(instances []client.Instance) {
	p.mu.Lock()
	p.desired = instances
	p.mu.Unlock()
	p.signal()
}

// Wrote implements Publisher.
func (p *meshPublisher) Wrote() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrote
}

// Problems implements Publisher.
func (p *meshPublisher) Problems() map[string]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]error)
	for _, i := range p.desired {
		if err := cmp.Or(p.unlocated[i.Address()], p.conflicts[client.NameOf(seam.Key{}, i)]); err != nil {
			all[client.NameOf(seam.Key{}, i)] = fmt.Errorf("instance at %s: %w", i.Address(), err)
		}
	}
	s := p.keys.Status()
	if s.Err != "" {
		all[""] = errors.New(s.Err)
	}
	for _, r := range s.Replicas {
		if r.Err != "" && !r.Connected {
			all[""] = fmt.Errorf("service keys at %s: %s", r.Replica, r.Err)
		}
	}
	return all
}

// Run implements Publisher. Nothing has to be withdrawn, because istiod forgets the keys when
// the stream ends.
func (p *meshPublisher) Run(ctx context.Context, _ time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.keys.Run(ctx) }()
	p.follow(ctx)
	return <-ended
}

// location says where the mesh offers one address of this process.
type location struct {
	address string
	host    naming.HostAddress // zero: not found yet
	end     context.CancelFunc // ends the search
}

// follow publishes the desired instances. Each is published as soon as its address is located,
// without waiting for the others.
func (p *meshPublisher) follow(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at, found := make(map[string]*location), make(chan location)
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-found:
			if here := at[l.address]; here != nil {
				here.host = l.host
			}
		case <-p.wake:
		}
		p.mu.Lock()
		desired := p.desired
		p.mu.Unlock()
		p.locate(ctx, &running, desired, at, found)
		hosts, conflicts := hostsOf(desired, at)
		p.mu.Lock()
		p.conflicts, p.wrote = conflicts, p.wrote || len(hosts) > 0
		p.mu.Unlock()
		p.keys.Set(hosts)
	}
}

// hostsOf returns the host address of each service key. A key leads to one host address, that
// of the first instance by address. Instances at another one get an error.
func hostsOf(desired []client.Instance, at map[string]*location) (
	hosts map[naming.ServiceKey]naming.HostAddress, conflicts map[string]error,
) {
	hosts, conflicts = make(map[naming.ServiceKey]naming.HostAddress), make(map[string]error)
	byAddress := func(a, b client.Instance) int { return cmp.Compare(a.Address(), b.Address()) }
	for _, i := range slices.SortedFunc(slices.Values(desired), byAddress) {
		a := at[i.Address()].host
		if a.Host == "" {
			continue
		}
		for _, k := range client.KeysOf(seam.Key{}, i) {
			if other, there := hosts[k]; there && other != a {
				conflicts[client.NameOf(seam.Key{}, i)] = fmt.Errorf("%w: %s is already published at %s, so not at %s",
					client.ErrInvalid, k, other, a)
				continue
			}
			hosts[k] = a
		}
	}
	return hosts, conflicts
}

// locate starts to search for new addresses, and ends the search for addresses at which nothing
// is provided any more.
func (p *meshPublisher) locate(
	ctx context.Context, running *sync.WaitGroup, desired []client.Instance,
	at map[string]*location, found chan<- location,
) {
	here := make(map[string]bool)
	for _, i := range desired {
		address := i.Address()
		here[address] = true
		if at[address] != nil {
			continue
		}
		ctx, end := context.WithCancel(ctx)
		at[address] = &location{address: address, host: p.host, end: end}
		if p.host.Host == "" {
			running.Go(func() { p.search(ctx, i, found) })
		}
	}
	for address, l := range at {
		if !here[address] {
			l.end()
			delete(at, address)
			p.setUnlocated(address, nil)
		}
	}
}

// search finds the host address of an instance. It searches again when the mesh no longer
// offers the instance there, because the Service may have been renamed.
func (p *meshPublisher) search(ctx context.Context, i client.Instance, found chan<- location) {
	ip, err := netip.ParseAddr(i.Host)
	if err != nil {
		return // Register rejects it
	}
	report := func(err error) {
		if ctx.Err() == nil {
			p.setUnlocated(i.Address(), err)
		}
	}
	for {
		a, err := locate.Find(ctx, locate.Options{ADS: p.stream, IP: ip, Port: i.Port, Report: report})
		if err != nil {
			return
		}
		report(nil)
		select {
		case found <- location{address: i.Address(), host: a}:
		case <-ctx.Done():
			return
		}
		p.log.Info("own host address found", "instance", i.Address(), "host_address", a.String())
		if !p.awaitDeparture(ctx, i, a) {
			return
		}
		p.log.Info("own host address lost, searching again", "instance", i.Address(), "host_address", a.String())
		report = func(error) {} // the old host address stays published until another is found
	}
}

// departureWait is how long a host must lack an instance before the search starts again. Pods
// that are not ready leave their Service, too.
const departureWait = time.Minute

// awaitDeparture waits until a host has lacked an instance for departureWait. It returns false if
// ctx or the client ends earlier.
func (p *meshPublisher) awaitDeparture(ctx context.Context, i client.Instance, at naming.HostAddress) bool {
	if p.watch == nil {
		return false
	}
	w := p.watch(client.ByHost(at.String()))
	defer w.Stop()
	gone := false
	for {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if gone {
			limited, cancel = context.WithTimeout(ctx, departureWait)
		}
		s, err := w.Next(limited)
		expired := limited.Err() != nil
		cancel()
		switch {
		case errors.Is(err, client.ErrClosed) || ctx.Err() != nil:
			return false
		case err != nil && expired:
			return true
		case err == nil:
			gone = s.Err == nil && !slices.ContainsFunc(s.Endpoints, func(e client.Endpoint) bool {
				return e.Address() == i.Address()
			})
		}
	}
}

// setUnlocated records why the host address of an instance is unknown, and logs the first
// reason; nil: the address is known.
func (p *meshPublisher) setUnlocated(address string, err error) {
	p.mu.Lock()
	before := p.unlocated[address]
	delete(p.unlocated, address)
	if err != nil {
		p.unlocated[address] = withCause(err)
	}
	p.mu.Unlock()
	if err != nil && before == nil {
		p.log.Warn("service keys not published, retrying", "instance", address, "err", err)
	}
}

// signal makes follow compare the desired instances again.
func (p *meshPublisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
