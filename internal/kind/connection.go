package kind

import (
	"context"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// A Connection is the connection to a target, made by the kind of the target.
type Connection struct {
	Connector

	// Persistent reports whether entries outlive the connection.
	Persistent bool

	// OnceRefusal is why run --once is refused: the entries would end with the process. It
	// is empty if run --once is accepted.
	OnceRefusal string

	// Remark is a remark on the target for a plan; it may be empty.
	Remark string

	// Reconnected receives after the connection or the right to write was lost and
	// recovered: others may have written meanwhile. It is nil if the target reports that
	// itself.
	Reconnected chan struct{}

	// Session returns the session at the registry, which shows that this process runs. It
	// is nil if the connection has no session.
	Session func() int64

	// Served is the target that clients read here. It is nil if the connection leads to a
	// registry.
	Served *mcp.Target
}

// A Connector connects to a target of one kind.
type Connector interface {
	// Run keeps the target reachable until ctx ends.
	Run(ctx context.Context) error

	// State returns the state of the connection. LastError is why the target is
	// unreachable.
	State() admin.TargetState

	// Bind makes the target for the bridges of a loop. The target reads former locations
	// as well, and writes nothing there.
	Bind(e *Env, bridges []config.Bridge, former []config.Use) (*Bound, error)

	// Close releases the resources of the connection.
	Close()
}

// Bound is a target over a connection, with its codecs and checks.
type Bound struct {
	Target  registry.Target
	Codecs  [][]metadata.Encoder // of each bridge
	Bridges []string             // identities of the bridges that lead there
	Check   func(context.Context, *preflight.Findings)

	// Background runs next to the loop until ctx ends. It may be nil.
	Background func(context.Context) error

	// Admitter decides whether the target may be written to. If it is nil, writing is
	// always admitted.
	Admitter Admitter

	// Owners remembers which owners wrote to the target. It is nil if the target remembers
	// none.
	Owners OwnerMemory
}

// An Admitter is a target that may not be written to while another process of the owner
// writes there.
type Admitter interface {
	// Admit returns nil once the target may be written to, and an error if it may not.
	Admit(ctx context.Context) error

	// Admission returns why Admit waits, nil if it does not.
	Admission() error

	// Hidden returns why other processes do not see that this one writes, nil if they do.
	Hidden() error

	// KeepAlive shows other processes that this one writes, until ctx ends.
	KeepAlive(ctx context.Context)
}

// An OwnerMemory remembers which owners wrote to a target. Entries in such a target outlive
// the connection that wrote them. The same may be true of other targets: see
// Connection.Persistent.
type OwnerMemory interface {
	Alive(ctx context.Context, owner string) (string, error)
	Forget(ctx context.Context, owner string, bridges []string) error
	Owners(ctx context.Context) ([]string, error)
	OwnerName(mark string) string
}
