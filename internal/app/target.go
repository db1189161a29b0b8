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
	"github.com/xds-bridge/xds-bridge/internal/kind"
)

// targetConnection is the connection to a target. It outlives loops: what is over it
// depends on bridges as well, the connection on the registry alone.
type targetConnection struct {
	*kind.Connection

	name, kind string
	listen     string // the address at which it serves; empty if it connects
	key        string // of all that the connection depends on
}

// target is one target with the loop of all bridges that lead to it.
type target struct {
	*targetConnection
	*kind.Bound
	at         config.TargetKey
	key        string // of all that the loop depends on beside the connection
	loop       *bridge.Loop
	formerUses []config.Use // locations that bridges wrote and write no more
	admission  *admission   // whether it may write; nil if it always may, or in a dry run
	election   *election    // nil if every replica writes, or there is but one
}

func (c *targetConnection) run(ctx context.Context) error {
	return wrap("target "+c.name, c.Run(ctx))
}

func (t *target) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return wrap("loop of "+t.name, t.loop.Run(ctx)) })
	if t.Reconnected != nil {
		group.Go(func() error { return t.rescan(ctx) })
	}
	if t.Background != nil {
		group.Go(func() error { return wrap("target "+t.name, t.Background(ctx)) })
	}
	if t.admission != nil {
		group.Go(func() error { return wrap("target "+t.name, t.admission.keepAlive(ctx)) })
	}
	if t.election != nil {
		t.election.link.Store(t.targetConnection)
		group.Go(func() error { return t.resyncWhenAlike(ctx) })
	}
	return group.Wait()
}

// rescan makes the loop read everything again whenever a connection is back.
func (t *target) rescan(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.Reconnected:
		}
		if err := t.resync(ctx); err != nil {
			return err
		}
	}
}

// resyncWhenAlike makes the loop read everything again once all replicas are configured
// alike: what it kept because another one may claim it may go by then.
func (t *target) resyncWhenAlike(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for differed := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		before := differed
		differed = t.election.differing()
		switch {
		case differed == before, differed == recordUnread:
		case differed != "":
			t.election.log.Warn("replicas differ", "reason", differed)
		case before != recordUnread: // while the record was not read, nothing was kept
			if err := t.resync(ctx); err != nil {
				return err
			}
		}
	}
}

func (t *target) resync(ctx context.Context) error {
	if err := t.loop.Resync(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, bridge.ErrStopped) {
		return fmt.Errorf("target %s: %w", t.name, err)
	}
	return nil
}

// stateWithAdmission returns the state of a target. If it is connected and has an
// admission, LastError is the warning of that.
func (t *target) stateWithAdmission() admin.TargetState {
	state := t.State()
	if t.admission == nil {
		return state
	}
	if state.Connected {
		state.LastError = t.admission.warning()
	}
	state.Refused = t.admission.refusal()
	return state
}
