package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// targetConnection is the connection to a target. It outlives loops: what is over it
// depends on bridges as well, the connection on the registry alone.
type targetConnection struct {
	connection

	name, kind  string
	key         string        // of all that the connection depends on
	listen      string        // the address at which it serves; empty if it connects
	persistent  bool          // entries outlive the connection
	onceRefusal string        // why run --once is refused: nothing is left after the process; empty: it is not
	remark      string        // what a plan says of it; empty: nothing
	reconnected chan struct{} // ready after the connection or the right to write was lost and is back: others may have written meanwhile
	session     func() int64  // the session at the registry, which shows that this process runs; nil: it has none
	served      *mcp.Target   // what clients are served; nil: it connects
}

// A connection connects to a target of one kind.
type connection interface {
	// run keeps the target reachable until ctx ends.
	run(ctx context.Context) error

	// state returns how it is connected; LastError is why it is unreachable.
	state() admin.TargetState

	// bind makes the target that the connection leads to, for the bridges of
	// a loop. It looks at former locations as well, and nothing is written there.
	bind(e *Env, bridges []config.Bridge, former []config.Use) (*boundTarget, error)

	// close gives back what it holds.
	close()
}

// boundTarget is a target over a connection, and what goes with it.
type boundTarget struct {
	target     registry.Target
	codecs     [][]metadata.Encoder // of each bridge
	check      func(context.Context, *findings)
	background func(context.Context) error // runs beside the loop until ctx ends; nil: nothing does
	admitter   admitter                    // whether it may write; nil if it always may
	owners     ownerMemory                 // which owners wrote there; nil: that is not remembered
	bridges    []string                    // what identifies the bridges that lead there
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
// targetConnection.persistent.
type ownerMemory interface {
	Alive(ctx context.Context, owner string) (string, error)
	Forget(ctx context.Context, owner string, bridges []string) error
	Owners(ctx context.Context) ([]string, error)
	OwnerName(mark string) string
}

// sink is one target with the loop of all bridges that lead to it.
type sink struct {
	*targetConnection
	*boundTarget
	at         config.TargetKey
	key        string // of all that the loop depends on beside the connection
	loop       *bridge.Loop
	formerUses []config.Use // locations that bridges wrote and write no more
	admission  *admission   // whether it may write; nil if it always may, or in a dry run
	election   *election    // nil if every replica writes, or there is but one
}

func (c *targetConnection) run(ctx context.Context) error {
	return wrap("target "+c.name, c.connection.run(ctx))
}

func (s *sink) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return wrap("loop of "+s.name, s.loop.Run(ctx)) })
	if s.reconnected != nil {
		group.Go(func() error { return s.rescan(ctx) })
	}
	if s.background != nil {
		group.Go(func() error { return wrap("target "+s.name, s.background(ctx)) })
	}
	if s.admission != nil {
		group.Go(func() error { return wrap("target "+s.name, s.admission.keepAlive(ctx)) })
	}
	if s.election != nil {
		s.election.link.Store(s.targetConnection)
		group.Go(func() error { return s.resyncWhenAlike(ctx) })
	}
	return group.Wait()
}

// rescan makes the loop read everything again whenever a connection is back.
func (s *sink) rescan(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.reconnected:
		}
		if err := s.resync(ctx); err != nil {
			return err
		}
	}
}

// resyncWhenAlike makes the loop read everything again once all replicas are configured
// alike: what it kept because another one may claim it may go by then.
func (s *sink) resyncWhenAlike(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for differed := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		before := differed
		differed = s.election.differing()
		switch {
		case differed == before, differed == recordUnread:
		case differed != "":
			s.election.log.Warn("replicas differ", "reason", differed)
		case before != recordUnread: // while the record was not read, nothing was kept
			if err := s.resync(ctx); err != nil {
				return err
			}
		}
	}
}

func (s *sink) resync(ctx context.Context) error {
	if err := s.loop.Resync(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, bridge.ErrStopped) {
		return fmt.Errorf("target %s: %w", s.name, err)
	}
	return nil
}

// stateWithAdmission returns the state of a target. If it is connected and has an
// admission, LastError is the warning of that.
func (s *sink) stateWithAdmission() admin.TargetState {
	state := s.state()
	if s.admission == nil {
		return state
	}
	if state.Connected {
		state.LastError = s.admission.warning()
	}
	state.Refused = s.admission.refusal()
	return state
}
