// Package bridge keeps a target in sync with the tables of one or more
// sources: it plans, writes the difference, and holds deletions back until
// both sides are known well enough. It knows no registry and no format.
//
// An engine decides: it is a value that is given what sources report, the results
// of calls and the time, and returns the calls to make. A driver runs it in one
// goroutine, and beside it the calls, at most Options.Workers of them.
package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Project turns a service into the entries that the target should hold for
// it. It must be pure, and is called from several goroutines. The error is beside
// the entries and says what has none, see registry.LeftOutBy.
type Project func(*registry.Service) ([]registry.Entry, error)

// Bridge is one configured pipeline, from a table to the target of a Loop.
type Bridge struct {
	Name    string
	Table   *registry.Table
	Part    registry.Part // what the bridge takes of the table: nothing else is there for it
	Project Project
	Policy  Policy
	Guard   Guard

	// Trace says where entries came from that nobody claims; nil where none say.
	Trace Trace

	// Yields reports whether an entry of the bridge yields to another's that has
	// the same address under another protocol, because its own is a guess. It must
	// be pure; nil: none does.
	Yields func(registry.Entry) bool

	// Begin returns once the bridge may look at its table, or an error where ctx
	// ended before. Until then the bridge knows nothing of its source. nil: it
	// may at once.
	Begin func(ctx context.Context) error

	// Recheck asks the source for a reading of everything over a new connection,
	// so that Certainty.Dials advances; it is called when a hold is halfway to its
	// confirmation, and again while that did not happen. It must not block; nil
	// where the source cannot.
	Recheck func()
}

// A Trace reads from an entry of ours where it came from, so that what a source
// cannot report one service keeps no entry of another. It must be pure.
type Trace interface {
	// Origin returns the service that an entry was written for, empty where it
	// does not say.
	Origin(e registry.Entry) registry.Name

	// Service reports whether a scope covers services by their names, and
	// nothing else.
	Service(scope string) bool
}

// Policy says what a bridge may do to its entries.
type Policy string

// The policies. The zero value means PolicySync.
const (
	PolicySync       Policy = "sync"
	PolicyUpsertOnly Policy = "upsert-only"
	PolicyCreateOnly Policy = "create-only"
	PolicyReadOnly   Policy = "read-only"
)

// Mode says how far a guard goes.
type Mode = guard.Mode

// The modes of a guard. The zero value means GuardEnforce.
const (
	GuardEnforce = guard.Enforce
	GuardWarn    = guard.Warn
	GuardOff     = guard.Off
)

// Guard says how reluctantly a bridge deletes. See DefaultGuard. In the zero
// value no rule about time or share applies; whatever the guard, nothing is
// deleted while the source is not synced, stale or cannot report a service.
type Guard = guard.Options

// DefaultGuard returns the guard of a bridge whose configuration sets nothing else.
func DefaultGuard() Guard {
	return Guard{
		Mode: GuardEnforce, Share: 0.3, AtLeast: 10, Window: time.Hour,
		LastEndpoint: 30 * time.Second, Settle: time.Minute, Confirm: 10 * time.Minute,
	}
}

// Options tune a Loop.
type Options struct {
	Target      string        // the target's name in the configuration
	Owner       string        // as registry.Stored.Owner has it: marks what the loop may change and delete
	Workers     int           // calls to the target at a time, at most: fewer after some failed
	Rate        float64       // calls to the target in a second, at most; 0: no bound
	Timeout     time.Duration // how long one call may last; 0 is 30 s
	Debounce    time.Duration // how long followers of a first change are gathered
	MaxDebounce time.Duration // how long a group that never stops changing waits at most, and how often it is then written
	Refresh     time.Duration // how long a belief about a group is trusted before it is read again
	Retry       registry.Backoff
	Election    Election // which of several replicas may write; nil: this is the only one
	Log         *slog.Logger
	Author      func(registry.Entry) string // the bridge that wrote an entry of ours: one of this loop, or a name that none has, whose entries a person has to approve; empty: it does not say, and the head of its group is asked. nil: none does
	OwnerName   func(mark string) string    // the name of another owner; empty: only its mark is known. It must not block; nil: none is known
	Differ      func() string               // why another replica may know who claims what nobody here does; empty: none does. nil: none ever
	Observe     func(Observation)           // called for every call and hold, from the loop's goroutine; may be nil
	OnEvent     func(Event)                 // called with what a person may ask about later, from the loop's goroutine; may be nil
}

func (o Options) withDefaults() Options {
	o.Workers = cmp.Or(max(o.Workers, 0), 16)
	o.Timeout = cmp.Or(max(o.Timeout, 0), 30*time.Second)
	o.Debounce = max(o.Debounce, 0)
	o.MaxDebounce = max(cmp.Or(max(o.MaxDebounce, 0), 10*o.Debounce), o.Debounce)
	o.Refresh = cmp.Or(max(o.Refresh, 0), 5*time.Minute)
	o.Retry.Min = cmp.Or(max(o.Retry.Min, 0), time.Second)
	o.Retry.Max = max(cmp.Or(max(o.Retry.Max, 0), time.Minute), o.Retry.Min)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

func (b Bridge) withDefaults() Bridge {
	b.Policy = cmp.Or(b.Policy, PolicySync)
	b.Guard.Mode = cmp.Or(b.Guard.Mode, GuardEnforce)
	return b
}

func (b Bridge) validate() error {
	switch b.Policy {
	case PolicySync, PolicyUpsertOnly, PolicyCreateOnly, PolicyReadOnly:
	default:
		return fmt.Errorf("unknown policy %q", b.Policy)
	}
	switch b.Guard.Mode {
	case GuardEnforce, GuardWarn, GuardOff:
	default:
		return fmt.Errorf("unknown guard mode %q", b.Guard.Mode)
	}
	switch {
	case b.Name == "":
		return errors.New("the name is missing: set Name")
	case b.Table == nil || b.Project == nil:
		return errors.New("the table or the projection is missing: set Table and Project")
	}
	return validateGuard(b.Guard)
}

func validateGuard(g Guard) error {
	if !(g.Share >= 0 && g.Share <= 1) { // nor NaN
		return fmt.Errorf("guard share must be between 0 and 1, such as 0.3 (got %v)", g.Share)
	}
	if g.AtLeast < 0 || min(g.Window, g.LastEndpoint, g.Settle, g.Confirm) < 0 {
		return errors.New("guard numbers and durations must not be negative")
	}
	return nil
}
