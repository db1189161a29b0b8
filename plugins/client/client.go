package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// Registry is what the plugin of a framework uses of a Client.
type Registry interface {
	Register(i Instance) error
	Deregister(ctx context.Context, instances ...Instance) error
	Resolve(ctx context.Context, q Query) (Snapshot, error)
	Watch(q Query) *Watch
}

// Backend is one registry as a Client uses it. Mesh, ZooKeeper and Nacos make
// one; parts that are missing are not done.
type Backend struct {
	Kind string // for logs: mesh, zookeeper, nacos

	// Place is which registry it is, and what of it is read: its kind, servers, root or
	// namespace and group, and format. A state file answers for its own place alone.
	Place string

	Source registry.Source // of what others provide

	// Interest limits Source to what is asked for, by the names that Names gives
	// to a query; nil where the source reports everything.
	Interest *registry.Interest
	Names    func(Query) []string

	// Shows returns the queries of which each has to find an instance that is
	// provided; nil: those for its service keys.
	Shows func(Instance) []Query

	Publisher Publisher // of what this process provides

	// Valid returns why the registry can hold nothing under a name that Names returned;
	// nil: it holds any.
	Valid func(name string) error

	used *atomic.Bool // a client was made of it

	// Routes make a reader of how the mesh divides calls; changed receives which
	// hosts it is about.
	Routes func(changed func(naming.HostAddress)) (*routes.Reader, error)

	// Err says why the registry cannot be read as it should; nil where it can.
	Err func() error
}

// Publisher keeps what a process provides in a registry.
type Publisher interface {
	// Run publishes until ctx ends and then withdraws everything, as far as that
	// is done within grace. It returns nil after all of it has ended.
	Run(ctx context.Context, grace time.Duration) error

	// Set makes these all that is provided. It never blocks.
	Set(instances []Instance)

	// Wrote reports whether anything of Set may have reached the registry.
	Wrote() bool

	// Err says why something is not published as it should be; nil where
	// everything is.
	Err() error
}

// watching is a Publisher that looks at what others provide, by its client, which it
// is given before it is run.
type watching interface {
	watchWith(c *Client)
}

// Options tune a Client. A negative duration says that there is none; of StateAge it is
// an error.
type Options struct {
	// StateFile keeps the last known answers, so that an application that starts
	// while its registry is away has something to call; empty: none. Each client has
	// a file of its own: of two that share one each erases the answers of the other.
	StateFile string

	// StateAge is how old an answer of the state file may be to be used: since the
	// registry confirmed it last. 0: 24 h.
	StateAge time.Duration

	// Linger is how long what Resolve asked for once is kept up to date; 0: 1 min.
	Linger time.Duration

	// DrainDelay is how long Deregister waits on after this process no longer sees
	// the instance: others learn of it a little later, and those that ask from
	// time to time when they ask next. 0: 1 s.
	DrainDelay time.Duration

	// Doubt is how long the registry has to be back, without a break, before what
	// was known and is not reported any more goes: providers come back one by one.
	// Where it flaps that goes after four times as long in all. 0: 15 s.
	Doubt time.Duration

	// Grace is how long Close waits for what is published to be withdrawn;
	// 0: 5 s.
	Grace time.Duration

	// Log receives changes of state; nothing is logged if it is nil.
	Log *slog.Logger
}

// Client is one registry. It implements Registry.
type Client struct {
	backend Backend
	o       Options
	table   *registry.Table
	index   *index
	routes  *routes.Reader
	state   *state

	end     context.CancelCauseFunc
	ctx     context.Context //nolint:containedctx // of everything that runs until Close
	running sync.WaitGroup

	following sync.WaitGroup // functions that answers are handed to

	mu        sync.Mutex
	instances map[string]Instance   // by name
	drained   time.Time             // when Deregister waits no longer
	lingering map[Query]*time.Timer // of what was asked for lately
	fatal     error                 // a part that ended by itself

	handling sync.Mutex       // guards panicked; it is the last of two that are locked
	panicked map[*Watch]error // of functions that answers are handed to
}

// New starts a client and returns at once, whatever the registry is like. The
// error names what is wrong with the options.
func New(b Backend, o Options) (*Client, error) {
	if b.Source == nil && b.Publisher == nil {
		return nil, errors.New("client: a backend without a source and a publisher")
	}
	if o.StateAge < 0 {
		return nil, fmt.Errorf("client: StateAge must not be negative (got %s); leave StateFile empty to use none", o.StateAge)
	}
	if b.used != nil && b.used.Swap(true) {
		return nil, fmt.Errorf("client: %s: a backend makes one client; make another backend", b.Kind)
	}
	if b.Shows == nil {
		b.Shows = byKeys
	}
	o = o.withDefaults()
	o.Log = o.Log.With("registry", b.Kind)
	c := &Client{backend: b, o: o, table: registry.NewTable(), instances: make(map[string]Instance), lingering: make(map[Query]*time.Timer), panicked: make(map[*Watch]error)}
	limit(c.table, b.Source)
	c.index = newIndex(c.table, o.Doubt)
	c.index.hides = b.Interest == nil
	c.state = openState(o, b.Place)
	if b.Routes != nil {
		var err error
		if c.routes, err = b.Routes(func(a naming.HostAddress) { c.routed(a) }); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	if p, ok := b.Publisher.(watching); ok && b.Source != nil {
		p.watchWith(c)
	}
	c.start()
	return c, nil
}

// limit bounds what a registry can make a client hold.
func limit(t *registry.Table, source registry.Source) {
	var recheck func()
	if s, ok := source.(interface{ Recheck() }); ok {
		recheck = s.Recheck
	}
	t.Limit(registry.Limits{Services: 100_000, Endpoints: 1_000_000, Bytes: 128 << 20}, recheck)
}

func (o Options) withDefaults() Options {
	o.Log = orDiscard(o.Log)
	o.Linger, o.DrainDelay = orElse(o.Linger, time.Minute), orElse(o.DrainDelay, time.Second)
	o.StateAge = orElse(o.StateAge, 24*time.Hour)
	o.Doubt, o.Grace = orElse(o.Doubt, 15*time.Second), orElse(o.Grace, 5*time.Second)
	return o
}

// orElse returns a duration, another where it is 0, and none where it is negative.
func orElse(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return max(d, 0)
}

func (c *Client) start() {
	c.run("index", c.follow)
	if c.backend.Source != nil {
		c.run("source", func(ctx context.Context) error { return c.backend.Source.Run(ctx, c.table) })
	}
	if c.backend.Publisher != nil {
		c.run("publisher", func(ctx context.Context) error { return c.backend.Publisher.Run(ctx, c.o.Grace) })
	}
	if c.routes != nil {
		c.run("routes", c.routes.Run)
	}
	c.run("state", func(ctx context.Context) error { return c.state.run(ctx, c.confirm) })
}

// run starts a part of the client. A part that ends before Close, or panics, is
// logged and shown by Status; the application and the other parts continue.
func (c *Client) run(name string, part func(context.Context) error) {
	c.running.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.o.Log.Error("a part of the client panicked, the last known state continues",
					"part", name, "err", fmt.Sprint(p), "stack", string(debug.Stack()))
				c.failed(fmt.Errorf("%s: panic: %v", name, p))
			}
		}()
		if err := part(c.ctx); err != nil && c.ctx.Err() == nil {
			c.o.Log.Error("a part of the client ended, the last known state continues", "part", name, "err", err)
			c.failed(fmt.Errorf("%s: %w", name, err))
		}
	})
}

// goes has Close wait for a follower, which ends with the client; it is not called
// once the client is closed.
func (c *Client) goes(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.following.Go(do)
	return true
}

func (c *Client) failed(err error) {
	c.mu.Lock()
	c.fatal = first(c.fatal, err)
	c.mu.Unlock()
	c.table.Stale(err)
}

// follow keeps the index in sync with the table.
func (c *Client) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.index.reader.Wake():
			c.index.drain()
		case <-c.index.doubts.end.C:
			c.index.endDoubts()
		}
	}
}

// routed wakes those who watch services at a host.
func (c *Client) routed(a naming.HostAddress) {
	if s := c.table.Get(registry.Name(a.String())); s != nil {
		for _, q := range queries(s) {
			c.index.wake(q)
		}
	}
}

// Close takes back what is published, within Options.Grace, and ends everything
// the client started before it returns. Watches end with ErrClosed. A function that an
// answer is handed to is waited for within Options.Grace too.
func (c *Client) Close() {
	c.mu.Lock()
	c.end(ErrClosed) // what goes from now on is not waited for
	c.mu.Unlock()
	c.running.Wait()
	handled := make(chan struct{})
	go func() {
		c.following.Wait()
		close(handled)
	}()
	timer := time.NewTimer(c.o.Grace)
	defer timer.Stop()
	select {
	case <-handled:
	case <-timer.C:
		c.o.Log.Error("closed while a function that answers are handed to has not returned", "after", c.o.Grace)
	}
}

// Status is the state of a client.
type Status struct {
	Available bool       // the registry was read at least once and is connected to
	Err       error      // why not, or why something is not published or that is asked for not reported
	Instances []Instance // what is registered, each interface by itself

	// LeftOut is what others publish of what is asked for and no answer has, with the
	// reason: addresses that must not be called, and entries that cannot be read.
	LeftOut map[string]string
}

// leftOut returns what of the answers to what is asked for was left out. The sources
// of registries report entries of what is asked for alone, by name and key; that of the
// mesh every host.
func (c *Client) leftOut() map[string]string {
	asked := make(map[string]bool)
	for _, q := range c.index.watched() {
		for _, s := range c.index.find(q).services {
			asked[string(s.Name)] = true
		}
	}
	all := c.table.Skipped()
	maps.DeleteFunc(all, func(key, _ string) bool { return !asked[key] && !strings.Contains(key, " ") })
	return all
}

// Status returns the state of the client. It never blocks.
func (c *Client) Status() Status {
	c.index.drain()
	c.mu.Lock()
	s := Status{Instances: slices.SortedFunc(maps.Values(c.instances), compareInstances), Err: c.fatal}
	c.mu.Unlock()
	var panicked error
	c.handling.Lock()
	for _, err := range c.panicked {
		panicked = err
	}
	c.handling.Unlock()
	found := c.index.find(Query{})
	s.Available = s.Err == nil && found.stale == nil && (found.synced || c.backend.Source == nil) && c.ctx.Err() == nil
	s.Err = caused(first(context.Cause(c.ctx), s.Err, found.stale, c.registryErr(), caused(c.index.rootUnknown(), ErrUnknown), panicked, c.state.failure()), ErrUnreachable)
	s.LeftOut = c.leftOut()
	return s
}

// registryErr returns why the registry cannot be read or written as it should.
func (c *Client) registryErr() error {
	var err error
	if c.backend.Err != nil {
		err = c.backend.Err()
	}
	if err == nil && c.backend.Publisher != nil {
		err = c.backend.Publisher.Err()
	}
	if err == nil {
		err = caused(c.backend.Interest.Err(), ErrUnknown)
	}
	return err
}

// Register publishes an instance from now on, and again after connections are lost.
// It returns at once; WaitVisible reports when consumers see it. What is registered
// of one application and address adds up, interface by interface; an interface
// that is registered again is replaced. The error names what cannot be published.
func (c *Client) Register(i Instance) error {
	if err := i.check(); err != nil {
		return err
	}
	if c.backend.Publisher == nil {
		return fmt.Errorf("client: %s: a provider must have an identity; set Identity of its options", c.backend.Kind)
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	if a, err := netip.ParseAddr(i.Host); err == nil && a.IsLoopback() {
		c.o.Log.Warn("instance at a loopback address, only this machine can call it", "instance", i.id())
	}
	i.Interfaces, i.Metadata = slices.Clone(i.Interfaces), maps.Clone(i.Metadata)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range i.each() {
		c.instances[one.name()] = one
	}
	c.drained = time.Time{}
	c.backend.Publisher.Set(slices.Collect(maps.Values(c.instances)))
	return nil
}

// drain is how long Deregister waits for the registry at most where nobody says how
// long, for all that is withdrawn one after the other.
const drain = 10 * time.Second

// Deregister takes the interfaces of instances back and waits until consumers no
// longer see them, and once for Options.DrainDelay, so that they may end without a call
// lost, or until ctx ends, whose error it returns then. Where ctx has no deadline it
// waits for the registry for 10 s, in all of several calls that follow each other. They
// are withdrawn all the same. An address that still provides a name to the caller is
// not waited for under that name, and nothing is where nothing was ever published.
// Where the registry refuses to show them it returns ErrDenied.
//
// A mesh offers an instance for as long as its pod is ready, whatever is withdrawn:
// there it waits for the pod to go, as it does when Kubernetes has asked it to end.
func (c *Client) Deregister(ctx context.Context, instances ...Instance) error {
	gone, left := c.withdraw(instances)
	if len(gone) == 0 || c.backend.Source == nil || !c.backend.Publisher.Wrote() {
		return nil
	}
	limited, cancel := c.draining(ctx)
	defer cancel()
	for _, i := range gone {
		for _, q := range c.backend.Shows(i) {
			if c.provides(left, i.Address(), q) {
				continue
			}
			if err := c.awaitAbsence(limited, q, i); err != nil {
				return err
			}
		}
	}
	return c.awaitDrain(ctx)
}

// withdraw no longer provides instances, and returns which it did, and the others.
func (c *Client) withdraw(instances []Instance) (gone, left []Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range instances {
		for _, one := range i.each() {
			if there, ok := c.instances[one.name()]; ok {
				gone = append(gone, there)
				delete(c.instances, one.name())
			}
		}
	}
	left = slices.Collect(maps.Values(c.instances))
	if len(gone) > 0 {
		c.backend.Publisher.Set(left)
	}
	return gone, left
}

// provides reports whether one of several instances answers a query at an address.
func (c *Client) provides(several []Instance, address string, q Query) bool {
	return slices.ContainsFunc(several, func(i Instance) bool {
		return i.Address() == address && slices.Contains(c.backend.Shows(i), q)
	})
}

// draining gives a context without a deadline that of what is withdrawn together.
func (c *Client) draining(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.drained.Add(drain)) {
		c.drained = now.Add(drain)
	}
	return context.WithDeadline(ctx, c.drained)
}

// awaitDrain gives consumers the time to learn what this process knows already.
func (c *Client) awaitDrain(ctx context.Context) error {
	timer := time.NewTimer(c.o.DrainDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	c.drained = c.drained.Add(c.o.DrainDelay) // it was not spent on the registry
	c.mu.Unlock()
	return nil
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
