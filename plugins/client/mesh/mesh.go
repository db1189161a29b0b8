// Package mesh has applications use an Istio mesh as their registry.
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

// Options say how a client connects to a mesh, and as whom.
type Options struct {
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

	Allow []netip.Prefix // as in source.Options; 127.0.0.0/8 in tests
	Log   *slog.Logger   // nil: nothing is logged
}

// New returns the mesh as a backend: what is provided is published to every
// replica of istiod as service keys, of which any number is one stream, and what
// others provide is found by key, application or host, with its routes.
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
	if tls := o.Credentials.TLS; tls != nil { // a replica is called by its address, which no certificate holds
		host, _, _ := net.SplitHostPort(o.Address)
		named := *tls
		named.ServerName = cmp.Or(tls.ServerName, host)
		o.Credentials.TLS = &named
	}
	i := &istiod{Options: o, resolver: net.DefaultResolver, connect: o.dial}
	i.stream = ads.Options{Address: o.Address, Credentials: o.Credentials, Node: node, Log: o.Log}
	return i.backend()
}

// patience is how long it waits for the other replicas of istiod before it uses those
// that it has.
const patience = 5 * time.Second

// istiod is what a mesh is read from and published to, in all its replicas.
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
		o.Istiod, wait = service, patience
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
	b := client.Backend{
		Kind:   "mesh",
		Place:  client.PlaceOf(seam.Key{}, "mesh", []string{i.Address}, cmp.Or(i.Identity.Cluster, "Kubernetes")+"/"+i.Identity.Namespace, ""),
		Source: reader, Recheck: reader.Recheck, Publisher: publisher, WatchWith: publisher.watchWith,
		Interest: interest, Names: func(q client.Query) []string { return []string{client.TextOf(seam.Key{}, q)} },
		Routes: func(changed func(naming.HostAddress)) (client.Routes, error) {
			r, err := routes.New(i.stream, changed)
			return tables{r}, err
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

// tables are the routes that a reader has.
type tables struct{ *routes.Reader }

// Get implements client.Routes.
func (t tables) Get(host naming.HostAddress) client.Router {
	if table := t.Reader.Get(host); table != nil {
		return table
	}
	return nil
}

// caused wraps why an own host address is not known with its cause.
func caused(err error) error {
	if errors.Is(err, locate.ErrNoService) {
		return fmt.Errorf("%w: %w", client.ErrOwnAddressUnknown, err)
	}
	return client.Caused(seam.Key{}, err, client.ErrUnreachable)
}

// mapping makes the reader of the service keys.
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
	conn, err := ads.Dial(replica, o.Credentials, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(ads.DefaultMaxReceive)))
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

func (i *istiod) publisher(wait time.Duration) (*meshPublisher, error) {
	p, err := keys.New(keys.Options{
		Node: i.stream.Node, Provider: true, Dial: i.connect, Log: i.Log, Replicas: i.replicas.Behind(i.resolver, i.Address, wait),
	})
	if err != nil {
		return nil, err
	}
	return newMeshPublisher(p, i.stream, i.Options), nil
}

// meshPublisher publishes the service keys of instances at the host addresses
// that this process has in the mesh: one for each port of a Service.
type meshPublisher struct {
	keys   *keys.Publisher
	stream ads.Options
	host   naming.HostAddress // given, or zero
	log    *slog.Logger
	watch  func(client.Query) *client.Watch // of what the mesh has at a host; nil: nothing can be watched
	wake   chan struct{}

	mu        sync.Mutex
	desired   []client.Instance
	own       map[string]error // why the own host address is not known, by address of the instance
	conflicts map[string]error // why an instance is not found by all of its keys, by its name
	wrote     bool             // as Publisher.Wrote has it
}

func newMeshPublisher(k *keys.Publisher, stream ads.Options, o Options) *meshPublisher {
	return &meshPublisher{keys: k, stream: stream, host: o.Host, log: o.Log, wake: make(chan struct{}, 1), own: make(map[string]error)}
}

// watchWith is client.Backend.WatchWith.
func (p *meshPublisher) watchWith(c *client.Client) { p.watch = c.Watch }

// Set implements Publisher.
func (p *meshPublisher) Set(instances []client.Instance) {
	p.mu.Lock()
	p.desired = instances
	p.mu.Unlock()
	p.again()
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
		if err := cmp.Or(p.own[i.Address()], p.conflicts[client.NameOf(seam.Key{}, i)]); err != nil {
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

// Run implements Publisher. What istiod shows ends with the stream, so nothing
// has to be withdrawn.
func (p *meshPublisher) Run(ctx context.Context, _ time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.keys.Run(ctx) }()
	p.follow(ctx)
	return <-ended
}

// location is where an address of this process is in the mesh.
type location struct {
	address string
	host    naming.HostAddress // zero until it is found
	end     context.CancelFunc
}

// follow publishes what is desired, each address once it is known where it is,
// whether others are or not.
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

// hostsOf returns where each service key is provided, and an error for each instance where that is at
// several: a key leads to one, the first by address.
func hostsOf(desired []client.Instance, at map[string]*location) (hosts map[naming.ServiceKey]naming.HostAddress, conflicts map[string]error) {
	hosts, conflicts = make(map[naming.ServiceKey]naming.HostAddress), make(map[string]error)
	for _, i := range slices.SortedFunc(slices.Values(desired), func(a, b client.Instance) int { return cmp.Compare(a.Address(), b.Address()) }) {
		a := at[i.Address()].host
		if a.Host == "" {
			continue
		}
		for _, k := range client.KeysOf(seam.Key{}, i) {
			if other, there := hosts[k]; there && other != a {
				conflicts[client.NameOf(seam.Key{}, i)] = fmt.Errorf("%w: %s is published at %s and not at %s too", client.ErrInvalid, k, other, a)
				continue
			}
			hosts[k] = a
		}
	}
	return hosts, conflicts
}

// locate begins to search for addresses that are new, and ends the search for
// those that nothing is provided at any more.
func (p *meshPublisher) locate(ctx context.Context, running *sync.WaitGroup, desired []client.Instance, at map[string]*location, found chan<- location) {
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
			p.unknown(address, nil)
		}
	}
}

// search finds the host address of an instance, and anew once the mesh has it
// there no longer: the Service may have got another name.
func (p *meshPublisher) search(ctx context.Context, i client.Instance, found chan<- location) {
	ip, err := netip.ParseAddr(i.Host)
	if err != nil {
		return // Register refuses it
	}
	report := func(err error) {
		if ctx.Err() == nil {
			p.unknown(i.Address(), err)
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
		if !p.left(ctx, i, a) {
			return
		}
		p.log.Info("own host address is searched for anew", "instance", i.Address(), "host_address", a.String())
		report = func(error) {} // it stays published where it was until it is found elsewhere
	}
}

// leftFor is how long a host has to be without an instance before that is
// searched for anew: pods that are not ready leave their Service too.
const leftFor = time.Minute

// left waits until a host has been without an instance for long, or ctx ends.
func (p *meshPublisher) left(ctx context.Context, i client.Instance, at naming.HostAddress) bool {
	if p.watch == nil {
		return false
	}
	w := p.watch(client.ByHost(at.String()))
	defer w.Stop()
	gone := false
	for {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if gone {
			limited, cancel = context.WithTimeout(ctx, leftFor)
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
			gone = s.Err == nil && !slices.ContainsFunc(s.Endpoints, func(e client.Endpoint) bool { return e.Address() == i.Address() })
		}
	}
}

// unknown records why the host address of an instance is not known, nil where it
// is, and logs the first reason.
func (p *meshPublisher) unknown(address string, err error) {
	p.mu.Lock()
	before := p.own[address]
	delete(p.own, address)
	if err != nil {
		p.own[address] = caused(err)
	}
	p.mu.Unlock()
	if err != nil && before == nil {
		p.log.Warn("service keys not published, trying on", "instance", address, "err", err)
	}
}

// again has what is desired compared once more.
func (p *meshPublisher) again() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
