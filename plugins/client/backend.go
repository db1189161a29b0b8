package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Registry is the part of a Client that the plugin of a framework uses.
type Registry interface {
	Register(i Instance) error
	Deregister(ctx context.Context, instances ...Instance) error
	Resolve(ctx context.Context, q Query) (Snapshot, error)
	Watch(q Query) *Watch
}

// Backend is one registry as a Client uses it. The packages mesh, zookeeper and
// nacos make one each. A Client skips the parts that are nil.
type Backend struct {
	Kind string // for logs: mesh, zookeeper, nacos

	// Place identifies the registry and the part of it that is read: its kind, servers,
	// root or namespace and group, and format. A state file is used only for its own Place.
	Place string

	// Source reads what others provide.
	Source registry.Source

	// Recheck makes Source read everything again over a new connection. It returns at once.
	// A Client calls it when the table has room again after a limit; nil: Source rereads on its own.
	Recheck func()

	// Interest limits Source to the names that Names returns for the current queries;
	// nil: Source reports everything.
	Interest *registry.Interest
	Names    func(Query) []string

	// Shows returns the queries that must each find a provided instance;
	// nil: the queries for its service keys.
	Shows func(Instance) []Query

	// Publisher publishes what this process provides.
	Publisher Publisher

	// WatchWith lets Publisher look up through a client what others provide. It is called
	// before Publisher runs, if there is a Source; nil: Publisher looks nothing up.
	WatchWith func(c *Client)

	// Holds returns why the registry cannot hold any part of an instance; nil: it holds every instance.
	Holds func(Instance) error

	// Valid returns why the registry cannot hold anything under a name that Names returned;
	// nil: every name is valid.
	Valid func(name string) error

	// Routes makes a reader of how the mesh divides calls. The reader calls changed with
	// each host whose routes changed.
	Routes func(changed func(naming.HostAddress)) (Routes, error)

	// Err returns why the registry cannot be read, or nil.
	Err func() error

	used *atomic.Bool // a client was made of the backend; set by Once
}

// Once makes it an error to make a second client of the backend or of its copies.
func (b *Backend) Once() { b.used = new(atomic.Bool) }

// Routes reads how the mesh divides the calls to the watched hosts.
type Routes interface {
	Run(ctx context.Context) error
	Watch(host naming.HostAddress)
	Unwatch(host naming.HostAddress)
	Get(host naming.HostAddress) Router // nil: any endpoint may be called
}

// Publisher keeps what a process provides published in a registry.
type Publisher interface {
	// Run publishes until ctx ends. Then it withdraws everything, within grace. It returns
	// when all of its work has ended, with an error if something was not withdrawn.
	Run(ctx context.Context, grace time.Duration) error

	// Set replaces the instances to publish. It never blocks.
	Set(instances []Instance)

	// Wrote reports whether anything passed to Set may have reached the registry.
	Wrote() bool

	// Problems returns why instances are not published as requested, by the name of the
	// instance. A problem of all instances has the empty name.
	Problems() map[string]error
}
