package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Source reports to a Table what one registry holds.
type Source interface {
	// Run keeps the table up to date until ctx ends. It then returns nil, after all
	// that it started has ended. While the registry is unreachable it keeps the
	// rows, reports why by Table.Stale and retries. Any error is permanent.
	Run(ctx context.Context, table *Table) error
}

// A Target is a registry that the bridge writes to. Its methods are called
// concurrently, but never for one group. They do not retry: the caller repeats a
// failed call after it has read the group again.
type Target interface {
	// Groups returns every group with an entry, of any owner. Some may be empty.
	Groups(ctx context.Context) ([]Group, error)

	// Read returns all entries of a group, of any owner; none and no error for a
	// group that does not exist. A partial, refused or failed read is an error.
	Read(ctx context.Context, group Group) ([]Stored, error)

	// Write applies a change if what it replaces or deletes was not changed since it
	// was read. Otherwise the error is ErrConflict, and nothing or a part was applied.
	// It may be repeated, and never changes entries of other owners.
	//
	// If the target refuses some keys, the error is Refused, and Change.Except of
	// these was applied. Any other error that wraps ErrRefused refuses the whole
	// change, such as one of what is not ours: nothing or a part was applied.
	Write(ctx context.Context, change Change) error

	// Capabilities returns what the target can do in addition. The result is the same
	// at every call, and the call does not block.
	Capabilities() Capabilities
}

// ErrConflict reports that another writer changed a group since it was read.
var ErrConflict = errors.New("changed by another since it was read")

// Check returns ErrConflict unless all that a change replaces or deletes is still as it
// was read, or already as desired. held returns the value of a key.
func (c Change) Check(held func(key string) (value string, there bool)) error {
	for _, w := range c.Put {
		value, there := held(w.New.Key)
		switch {
		case there && value == w.New.Value: // a repetition
		case w.Old == nil && there, w.Old != nil && (!there || value != w.Old.Value):
			return fmt.Errorf("entry %q: %w", w.New.Key, ErrConflict)
		}
	}
	for _, h := range c.Delete {
		if value, there := held(h.Key); there && value != h.Value {
			return fmt.Errorf("entry %q: %w", h.Key, ErrConflict)
		}
	}
	return nil
}

// ErrFenced reports that another replica has the lease, so that nothing was applied.
var ErrFenced = errors.New("another replica has the lease")

// ErrRefused is wrapped by errors of a Target that a retry does not help: a limit or a
// rule of the registry, or denied access. The caller reports it and retries at its
// slowest rate.
var ErrRefused = errors.New("refused")

// Backoff is the wait between attempts: Min, doubled each time up to Max.
type Backoff struct{ Min, Max time.Duration }

// After returns the wait after a number of failures in a row, from 1.
func (b Backoff) After(failures int) time.Duration {
	d := b.Min
	for i := 1; i < failures && d < b.Max; i++ {
		d *= 2
	}
	return min(d, b.Max)
}

// Spread returns After less a random part of up to a fifth, so that the clients of one
// server do not reconnect at once.
func (b Backoff) Spread(failures int) time.Duration {
	d := b.After(failures)
	return d - time.Duration(rand.Int64N(int64(d)/5+1)) //nolint:gosec // spreads load, keeps no secret
}

// Sleep waits for a duration, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
