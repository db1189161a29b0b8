package kind

import (
	"context"
	"log/slog"
	"net"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// Env is everything that a kind of registry may see of the process. It does not change;
// a reload makes another one.
type Env struct {
	// Config is the configuration. That of a source holds only what the source depends on.
	Config  *config.Config
	Signer  *metadata.Signer // nil: marks are not signed
	Metrics *metrics.Metrics
	Log     *slog.Logger

	// Listen listens at an address for the clients of a mesh; nil in a dry run, which
	// serves nothing.
	Listen func(ctx context.Context, address string) (net.Listener, error)

	// Adopted reports whether an operator changes the entries of an owner as if they were
	// ours; nil: of no owner.
	Adopted func(owner string) bool

	// Fence returns what each write to a registry checks: that this replica has the lease.
	// It is nil for a process without replicas.
	Fence func(registry string) func() (zookeeper.Fence, bool)

	// OwnSession reports whether a session at a registry belongs to this process. A
	// connection that a reload replaced keeps its session until it ends.
	OwnSession func(registry string, session int64) bool

	// Replicas returns where the replicas of a mesh's istiod are recorded; nil if the mesh
	// is not read.
	Replicas func(mesh, istiod string) *debug.Endpoints

	// KeyPublisher returns what publishes the service keys of a mesh; nil: nothing does.
	KeyPublisher func(mesh string) *keys.Publisher

	// Predecessor returns what was served at the same address before a reload; nil: nothing.
	Predecessor func(at config.TargetKey) *mcp.Target
}

// Logger returns the logger of a component for a registry.
func (e *Env) Logger(component, registry string) *slog.Logger {
	return e.Log.With("component", component, "registry", registry)
}

// TargetLogger returns the logger of a component for a target.
func (e *Env) TargetLogger(component string, at config.TargetKey) *slog.Logger {
	log := e.Logger(component, at.Registry)
	if at.Listen != "" {
		log = log.With("listen", at.Listen)
	}
	return log
}

// maker returns what makes codecs and projections.
func (e *Env) maker() projection.Maker { return projection.Maker{Config: e.Config, Signer: e.Signer} }
