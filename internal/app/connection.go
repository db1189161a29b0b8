package app

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
	connector

	// persistent reports whether entries outlive the connection.
	persistent bool

	// onceRefusal is why run --once is refused: nothing is left after the process; empty:
	// it is not.
	onceRefusal string

	// remark is what a plan reports of the target; empty: nothing.
	remark string

	// reconnected is ready after the connection or the right to write was lost and is back:
	// others may have written meanwhile. It is nil if the target reports that itself.
	reconnected chan struct{}

	// session returns the session at the registry, which shows that this process runs; nil:
	// the connection has none.
	session func() int64

	// served is what clients are served; nil: the connection leads to a registry.
	served *mcp.Target
}

// A connector connects to a target of one kind.
type connector interface {
	// run keeps the target reachable until ctx ends.
	run(ctx context.Context) error

	// state returns how it is connected; LastError is why it is unreachable.
	state() admin.TargetState

	// bind makes the target that the connection leads to, for the bridges of
	// a loop. It looks at former locations as well, and nothing is written there.
	bind(e *Env, bridges []config.Bridge, former []config.Use) (*Bound, error)

	// close gives back what it holds.
	close()
}

// Bound is a target over a connection, and what goes with it.
type Bound struct {
	target  registry.Target
	codecs  [][]metadata.Encoder // of each bridge
	bridges []string             // what identifies the bridges that lead there
	check   func(context.Context, *preflight.Findings)

	// background runs next to the loop until ctx ends; nil: nothing does.
	background func(context.Context) error

	// admitter decides whether the target may be written to; nil: it always may.
	admitter admitter

	// owners remembers which owners wrote there; nil: nothing does.
	owners ownerMemory
}

// An admitter is a target that may not be written to while another process of the owner
// writes there.
type admitter interface {
	// Admit returns once the target may be written to. Its error says why it may not.
	Admit(ctx context.Context) error

	// Admission returns what Admit waits for; nil: nothing.
	Admission() error

	// Hidden returns why other processes do not see that this one writes; nil: they do.
	Hidden() error

	// KeepAlive shows other processes that this one writes, until ctx ends.
	KeepAlive(ctx context.Context)
}

// An ownerMemory remembers which owners wrote to a target. Entries stay in such a target
// when the connection ends that wrote them. They may stay in others, too: see
// Connection.persistent.
type ownerMemory interface {
	Alive(ctx context.Context, owner string) (string, error)
	Forget(ctx context.Context, owner string, bridges []string) error
	Owners(ctx context.Context) ([]string, error)
	OwnerName(mark string) string
}
