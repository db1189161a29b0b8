package kind

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/lease"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
)

// A Kind makes the parts of a registry that differ between kinds, from its settings. Each
// kind has a file of its own.
type Kind interface {
	// Title returns the kind as status and metrics show it.
	Title() string

	// Source makes the source of the registry.
	Source(e *Env, name string) (Source, error)

	// Connection makes the connection to a target in the registry.
	Connection(e *Env, at config.TargetKey) (*Connection, error)

	// Facilities returns what the registry offers besides entries.
	Facilities() Facilities
}

// A Source is what each kind of registry is read by.
type Source interface {
	registry.Source

	// Recheck asks for a fresh reading.
	Recheck()

	// State returns how it is connected.
	State() admin.SourceState

	// Check tries whether the registry can be read.
	Check(ctx context.Context, f *preflight.Findings)
}

// Facilities are what a registry offers besides entries. It does not offer what is nil.
type Facilities struct {
	// ID is where the registry keeps its id.
	ID *IDStore

	// records returns where records are kept, for the owner of the configuration.
	records func(e *Env, name string) (*recordStore, error)

	// documents returns where the documents of Dubbo's applications are stored, below a
	// path if the registry has paths.
	documents func(e *Env, name, root string) (documentStore, error)

	// Leases returns a function that opens the lease of a target, and one that closes the
	// connection that all leases share.
	Leases func(owner string, log *slog.Logger) (open func(target string) (lease.Store, error), end func(), err error)

	// Keys makes what publishes service keys in a mesh.
	Keys func(e *Env, name string) (*keys.Publisher, error)
}

// An IDStore is where a registry keeps its id.
type IDStore struct {
	Where string // as an operator finds it

	// Ask returns the id that the registry keeps, which is offer if it kept
	// none and offer is not empty.
	Ask func(ctx context.Context, offer string) (string, error)
}

// A recordStore keeps records in a registry, over a connection of its own.
type recordStore struct {
	registry.Recorder

	name  string
	right string                          // what records require
	try   func(ctx context.Context) error // returns why no record can be kept
	run   func(ctx context.Context) error // keeps the registry reachable until ctx ends
	close func()
}

// Of returns the kind of a registry. A new one has its line here.
func Of(r config.Registry) Kind {
	switch s := r.Section().(type) {
	case *config.Istiod:
		return meshKind{s}
	case *config.Kubernetes:
		return kubernetesKind{s}
	case *config.ZooKeeper:
		return zookeeperKind{s}
	case *config.Nacos:
		return nacosKind{s}
	default:
		panic(fmt.Sprintf("no kind has a section of type %T", s)) // validation reported none before
	}
}

// during runs something for as long as work takes, and returns its error.
func during(ctx context.Context, run func(context.Context) error, work func()) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	work()
	cancel()
	return <-ended
}

// untilDone runs what needs nothing to run.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
