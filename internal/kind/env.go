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

// Env is everything that a kind of registry may see of the process. It is immutable; a
// reload makes another Env.
type Env struct {
	// Config is the configuration. For a source it holds only what the source depends on.
	Config  *config.Config
	Signer  *metadata.Signer // nil: marks are not signed
	Metrics *metrics.Metrics
	Log     *slog.Logger

	// Listen listens at an address for the clients of a mesh. It is nil in a dry run, which
	// serves nothing.
	Listen func(ctx context.Context, address string) (net.Listener, error)

	// Adopted reports whether an operation changes the entries of owner as if they were
	// ours. If it is nil, no owner is adopted.
	Adopted func(owner string) bool

	// Fence returns the condition of each write to a registry: this replica holds the
	// lease. It returns nil for a process without replicas.
	Fence func(registry string) func() (zookeeper.Fence, bool)

	// OwnSession reports whether a session at a registry belongs to this process. A
	// connection that a reload replaced keeps its session until the connection closes.
	OwnSession func(registry string, session int64) bool

	// Replicas returns the recorded endpoints of a mesh's istiod, nil if the mesh is not
	// read.
	Replicas func(mesh, istiod string) *debug.Endpoints

	// KeyPublisher returns the publisher of the service keys of a mesh, nil if there is
	// none.
	KeyPublisher func(mesh string) *keys.Publisher

	// Predecessor returns the target that served the same address before a reload, nil if
	// there is none.
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

// maker returns a maker of codecs and projections.
func (e *Env) maker() projection.Maker { return projection.Maker{Config: e.Config, Signer: e.Signer} }
