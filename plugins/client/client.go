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

	// Recheck has Source read everything again over a new connection, and does not wait.
	// It is called when the table has room again after a limit; nil: Source does so itself.
	Recheck func()

	// Interest limits Source to what is asked for, by the names that Names gives
	// to a query; nil where the source reports everything.
	Interest *registry.Interest
	Names    func(Query) []string

	// Shows returns the queries of which each has to find an instance that is
	// provided; nil: those for its service keys.
	Shows func(Instance) []Query

	Publisher Publisher // of what this process provides

	// WatchWith has Publisher look up through a client what others provide. It is called
	// before Publisher runs, if there is a Source; nil: Publisher looks nothing up.
	WatchWith func(c *Client)

	// Holds returns why the registry can hold nothing of an instance; nil: it holds any.
	Holds func(Instance) error

	// Valid returns why the registry can hold nothing under a name that Names returned;
	// nil: it holds any.
	Valid func(name string) error

	used *atomic.Bool // a client was made of it, as Once has it

	// Routes make a reader of how the mesh divides calls; changed receives which
	// hosts it is about.
	Routes func(changed func(naming.HostAddress)) (Routes, error)

	// Err says why the registry cannot be read as it should; nil where it can.
	Err func() error
}

// Once makes a second client of the backend, and of its copies, an error.
func (b *Backend) Once() { b.used = new(atomic.Bool) }

// Routes read how the mesh divides the calls of the hosts that are watched.
type Routes interface {
	Run(ctx context.Context) error
	Watch(host naming.HostAddress)
	Unwatch(host naming.HostAddress)
	Get(host naming.HostAddress) Router // nil: any endpoint may be called
}

// Publisher keeps what a process provides in a registry.
type Publisher interface {
	// Run publishes until ctx ends and then withdraws everything, as far as that
	// is done within grace. It returns after all of it has ended, with an error where not
	// everything was withdrawn.
	Run(ctx context.Context, grace time.Duration) error

	// Set makes these all that is provided. It never blocks.
	Set(instances []Instance)

	// Wrote reports whether anything of Set may have reached the registry.
	Wrote() bool

	// Problems say why something is not published as it should be: by the name of the
	// instance, or empty for all of them.
	Problems() map[string]error
}

// Options tune a Client. A negative duration says that there is none; of StateAge it is
// an error.
type Options struct {
	// Formats are those of URLs that name none, by kind of registry, such as
	// {"zookeeper": "kratos"}; a kind that is missing: dubbo-interface.
	Formats map[string]string

	// StateFile keeps the last known answers, so that an application that starts
	// while its registry is away has something to call; empty: none. Each client has
	// a file of its own: of two that share one each erases the answers of the other.
	StateFile string

	// StateAge is how old an answer of the state file may be to be used: since the
	// registry confirmed it last. 0: 24 h.
	StateAge time.Duration

	// KeepFresh is how long what Resolve asked for once is kept up to date; 0: 1 min.
	KeepFresh time.Duration

	// DrainDelay is how long Deregister waits on after this process no longer sees
	// the instance: others learn of it a little later, and those that ask from
	// time to time when they ask next. 0: 1 s.
	DrainDelay time.Duration

	// ForgetAfter is how long the registry has to be back, without a break, before what
	// was known and is not reported any more goes: providers come back one by one.
	// Where it flaps that goes after four times as long in all. 0: 15 s.
	ForgetAfter time.Duration

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
	routes  Routes
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
	left      error                 // what was not withdrawn at the end

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
	c.table.Limit(registry.Limits{Services: 100_000, Endpoints: 1_000_000, Bytes: 128 << 20}, b.Recheck)
	c.index = newIndex(c.table, o.ForgetAfter)
	c.index.hides = b.Interest == nil
	c.state = openState(o, b.Place)
	if b.Routes != nil {
		var err error
		if c.routes, err = b.Routes(func(a naming.HostAddress) { c.routed(a) }); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	if b.WatchWith != nil && b.Source != nil {
		b.WatchWith(c)
	}
	c.start()
	return c, nil
}

func (o Options) withDefaults() Options {
	o.Log = orDiscard(o.Log)
	o.KeepFresh, o.DrainDelay = orElse(o.KeepFresh, time.Minute), orElse(o.DrainDelay, time.Second)
	o.StateAge = orElse(o.StateAge, 24*time.Hour)
	o.ForgetAfter, o.Grace = orElse(o.ForgetAfter, 15*time.Second), orElse(o.Grace, 5*time.Second)
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
		c.run("publisher", c.publish)
	}
	if c.routes != nil {
		c.run("routes", c.routes.Run)
	}
	c.run("state", func(ctx context.Context) error { return c.state.run(ctx, c.confirm) })
}

func (c *Client) publish(ctx context.Context) error {
	err := c.backend.Publisher.Run(ctx, c.o.Grace)
	if ctx.Err() != nil {
		c.mu.Lock()
		c.left = err
		c.mu.Unlock()
	}
	return err
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
// the client started before it returns: at most a second later than Grace. The error says
// what was not withdrawn; it goes with the session. Watches end with ErrClosed. A
// function that an answer is handed to is waited for within Options.Grace too.
func (c *Client) Close() error {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// Shutdown deregisters everything as Deregister does, until ctx ends, and closes the
// client: drain, then end. It returns the first error of both.
func (c *Client) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.instances))
	c.mu.Unlock()
	return first(c.Deregister(ctx, all...), c.Close())
}

// Status is the state of a client.
type Status struct {
	Connected bool  // to the registry, now
	Read      bool  // the registry was read at least once, and what is known of it is current
	Err       error // why it is not connected, or not read; ErrClosed after Close

	Instances []InstanceStatus // that are registered, each interface by itself
	Queries   []QueryStatus    // that are asked for now and not answered as they should be

	// LeftOut is what others publish of what is asked for and no answer has, with the
	// reason: addresses that must not be called, and entries that cannot be read.
	LeftOut map[string]string

	// Local says what of this process hinders: a state file that cannot be written, or a
	// panic of a function that answers are handed to.
	Local error
}

// InstanceStatus is an instance that is registered.
type InstanceStatus struct {
	Instance Instance
	Err      error // why it is not published as it should be; nil where it is
}

// QueryStatus is what is asked for.
type QueryStatus struct {
	Query Query
	Err   error // why it is not known
}

// Problem returns the first reason why something is not as it should be; nil where
// everything is.
func (s Status) Problem() error {
	if s.Err != nil {
		return s.Err
	}
	for _, i := range s.Instances {
		if i.Err != nil {
			return i.Err
		}
	}
	for _, q := range s.Queries {
		return q.Err
	}
	return s.Local
}

// Status returns the state of the client. It never blocks.
func (c *Client) Status() Status {
	c.index.drain()
	found := c.index.find(Query{})
	var s Status
	c.mu.Lock()
	fatal, instances := c.fatal, slices.SortedFunc(maps.Values(c.instances), compareInstances)
	c.mu.Unlock()
	c.handling.Lock()
	for _, err := range c.panicked {
		s.Local = err
	}
	c.handling.Unlock()
	root := caused(c.index.rootUnknown(), ErrUnreadable)
	s.Err = caused(first(context.Cause(c.ctx), fatal, found.stale, c.sourceErr(), root), ErrUnreachable)
	if s.Err == nil && !found.synced && c.backend.Source != nil {
		s.Err = ErrPending
	}
	s.Read = c.backend.Source == nil || found.synced && found.stale == nil && root == nil
	s.Connected = c.ctx.Err() == nil && fatal == nil && !errors.Is(s.Err, ErrUnreachable) && !errors.Is(s.Err, ErrPending)
	s.Local = first(s.Local, c.state.failure())
	s.Instances = c.instanceStatus(instances)
	s.Queries = c.queryStatus()
	s.LeftOut = c.leftOut()
	return s
}

// sourceErr returns why the registry cannot be read.
func (c *Client) sourceErr() error {
	if c.backend.Err == nil {
		return nil
	}
	return c.backend.Err()
}

func (c *Client) instanceStatus(instances []Instance) []InstanceStatus {
	if c.backend.Publisher == nil {
		return nil
	}
	problems := c.backend.Publisher.Problems()
	all := make([]InstanceStatus, 0, len(instances))
	for _, i := range instances {
		all = append(all, InstanceStatus{i, caused(first(problems[i.name()], problems[""]), ErrUnreachable)})
	}
	return all
}

func (c *Client) queryStatus() (all []QueryStatus) {
	for _, q := range slices.SortedFunc(slices.Values(c.index.watched()), compareQueries) {
		if err := c.backend.Interest.Answer(c.names(q)...).Err; err != nil {
			all = append(all, QueryStatus{q, fmt.Errorf("%s: %w", q, caused(err, ErrUnreadable))})
		}
	}
	return all
}

// firstOf returns the first problem by instance.
func firstOf(problems map[string]error) error {
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		return problems[name]
	}
	return nil
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

// Register publishes an instance from now on, and again after connections are lost.
// It returns at once; WaitVisible reports when consumers see it. What is registered
// of one application and address adds up, interface by interface; an interface
// that is registered again is replaced. The error names what cannot be published.
func (c *Client) Register(i Instance) error {
	if err := i.check(); err != nil {
		return err
	}
	if c.backend.Publisher == nil {
		return fmt.Errorf("client: %s: %w: a provider must have an identity; set Identity of its options", c.backend.Kind, ErrInvalid)
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	if a, err := netip.ParseAddr(i.Host); err == nil && a.IsLoopback() {
		c.o.Log.Warn("instance at a loopback address, only this machine can call it", "instance", i.id())
	}
	i.Interfaces, i.Metadata = slices.Clone(i.Interfaces), maps.Clone(i.Metadata)
	if c.backend.Holds != nil {
		if err := c.backend.Holds(i); err != nil {
			return fmt.Errorf("instance %s: %w: %w", i.id(), ErrInvalid, err)
		}
	}
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
