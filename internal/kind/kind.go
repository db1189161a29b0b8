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

// A Kind makes the parts of a registry that differ between kinds, from the settings of the
// registry. Each kind has its own file.
type Kind interface {
	// Title returns the kind as status and metrics show it.
	Title() string

	// Source makes the source of the registry.
	Source(e *Env, name string) (Source, error)

	// Connection makes the connection to a target in the registry.
	Connection(e *Env, at config.TargetKey) (*Connection, error)

	// Facilities returns what the registry offers in addition to entries.
	Facilities() Facilities
}

// A Source reads a registry, and reports the state of its connection.
type Source interface {
	registry.Source

	// Recheck requests a full read.
	Recheck()

	// State returns the state of the connection.
	State() admin.SourceState

	// Check reports whether the registry can be read.
	Check(ctx context.Context, f *preflight.Findings)
}

// Facilities are what a registry offers in addition to entries. A nil field is not offered.
type Facilities struct {
	// ID stores the id of the registry.
	ID *IDStore

	// records opens the store for records of the configuration's owner.
	records func(e *Env, name string) (*recordStore, error)

	// documents opens the store of the documents of Dubbo applications, below root if the
	// registry has paths.
	documents func(e *Env, name, root string) (documentStore, error)

	// Leases returns a function that opens the lease of a target, and one that closes the
	// connection that all leases share.
	Leases func(owner string, log *slog.Logger) (open func(target string) (lease.Store, error), end func(), err error)

	// Keys makes a publisher of service keys in a mesh.
	Keys func(e *Env, name string) (*keys.Publisher, error)
}

// An IDStore stores the id of a registry in that registry.
type IDStore struct {
	Where string // the place of the id, as an operator finds it

	// Ask returns the stored id. If there is none and offer is not empty, it stores and
	// returns offer.
	Ask func(ctx context.Context, offer string) (string, error)
}

// A recordStore stores records in a registry, over its own connection.
type recordStore struct {
	registry.Recorder

	name       string
	permission string                          // the remedy if records are refused
	try        func(ctx context.Context) error // fails if no record can be stored
	run        func(ctx context.Context) error // keeps the registry reachable until ctx ends
	close      func()
}

// Of returns the kind of a registry. Each kind has a case here.
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
		panic(fmt.Sprintf("no kind has a section of type %T", s)) // validation rejects it
	}
}

// during calls run for as long as work takes, and returns the error of run.
func during(ctx context.Context, run func(context.Context) error, work func()) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	work()
	cancel()
	return <-ended
}

// untilDone is the run of a connection that needs no loop: it waits until ctx ends.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
