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

// A Connection leads to a target, as its kind made it.
type Connection struct {
	Connector

	// Persistent reports whether entries outlive the connection.
	Persistent bool

	// OnceRefusal is why run --once is refused: nothing is left after the process; empty:
	// it is not.
	OnceRefusal string

	// Remark is what a plan reports of the target; empty: nothing.
	Remark string

	// Reconnected is ready after the connection or the right to write was lost and is back:
	// others may have written meanwhile. It is nil if the target reports that itself.
	Reconnected chan struct{}

	// Session returns the session at the registry, which shows that this process runs; nil:
	// the connection has none.
	Session func() int64

	// Served is what clients are served; nil: the connection leads to a registry.
	Served *mcp.Target
}

// A Connector connects to a target of one kind.
type Connector interface {
	// Run keeps the target reachable until ctx ends.
	Run(ctx context.Context) error

	// State returns how it is connected; LastError is why it is unreachable.
	State() admin.TargetState

	// Bind makes the target that the connection leads to, for the bridges of
	// a loop. It looks at former locations as well, and nothing is written there.
	Bind(e *Env, bridges []config.Bridge, former []config.Use) (*Bound, error)

	// Close gives back what it holds.
	Close()
}

// Bound is a target over a connection, and what goes with it.
type Bound struct {
	Target  registry.Target
	Codecs  [][]metadata.Encoder // of each bridge
	Bridges []string             // what identifies the bridges that lead there
	Check   func(context.Context, *preflight.Findings)

	// Background runs next to the loop until ctx ends; nil: nothing does.
	Background func(context.Context) error

	// Admitter decides whether the target may be written to; nil: it always may.
	Admitter Admitter

	// Owners remembers which owners wrote there; nil: nothing does.
	Owners OwnerMemory
}

// An Admitter is a target that may not be written to while another process of the owner
// writes there.
type Admitter interface {
	// Admit returns once the target may be written to. Its error says why it may not.
	Admit(ctx context.Context) error

	// Admission returns what Admit waits for; nil: nothing.
	Admission() error

	// Hidden returns why other processes do not see that this one writes; nil: they do.
	Hidden() error

	// KeepAlive shows other processes that this one writes, until ctx ends.
	KeepAlive(ctx context.Context)
}

// An OwnerMemory remembers which owners wrote to a target. Entries stay in such a target
// when the connection ends that wrote them. They may stay in others, too: see
// Connection.Persistent.
type OwnerMemory interface {
	Alive(ctx context.Context, owner string) (string, error)
	Forget(ctx context.Context, owner string, bridges []string) error
	Owners(ctx context.Context) ([]string, error)
	OwnerName(mark string) string
}
