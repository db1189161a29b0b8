package client

import (
	"context"
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
