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

// Project returns the entries that the target should store for a service. It must be pure,
// and is called from several goroutines. An error does not invalidate the entries: it says
// what was left out, see registry.LeftOutBy.
type Project func(*registry.Service) ([]registry.Entry, error)

// Bridge is one configured pipeline, from a table to the target of a Loop.
type Bridge struct {
	Name    string
	Table   *registry.Table
	Part    registry.Part // the services of the table that the bridge sees
	Project Project
	Policy  Policy
	Guard   Guard

	// Trace says which services unclaimed entries came from; nil: unknown.
	Trace Trace

	// Yields reports whether the protocol of an entry is a guess. Such an entry yields to
	// another owner's entry of the same address under another protocol. It must be pure;
	// nil: no entry yields.
	Yields func(registry.Entry) bool

	// Begin returns once the bridge may read its table, or an error if ctx ends before.
	// Until then the bridge knows nothing of its source. nil: it may read at once.
	Begin func(ctx context.Context) error

	// Recheck requests a full read of the source over a new connection, which advances
	// Certainty.Dials. It is called when a hold is halfway to its confirmation, and again
	// until Dials advances. It must not block; nil: the source has no connection to renew.
	Recheck func()
}

// A Trace reads from one of our entries which service it came from. So a service that the
// source cannot report keeps only its own entries. It must be pure.
type Trace interface {
	// Origin returns the service that an entry was written for; empty if the entry does
	// not name it.
	Origin(e registry.Entry) registry.Name

	// Service reports whether a scope covers nothing but services, by their names.
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

// Guard says how reluctantly a bridge deletes. See DefaultGuard. The zero value has no rule
// about time or share. With any guard, nothing is deleted while the source is not synced,
// is stale, or cannot report the service.
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
	Target string // the target's name in the configuration
	Owner  string // what the loop may change and delete, as in registry.Stored.Owner

	Workers int           // calls to the target at a time, at most; fewer after failures
	Rate    float64       // calls to the target in a second, at most; 0: unlimited
	Timeout time.Duration // of one call; 0 is 30 s

	Debounce    time.Duration // how long changes are gathered after a first one
	MaxDebounce time.Duration // how long a group that keeps changing waits at most, and its interval of writes then
	Refresh     time.Duration // how long the content of a group is believed before it is read again
	Retry       registry.Backoff

	Election Election // which of several replicas may write; nil: this is the only one
	Log      *slog.Logger

	// Author returns the bridge that wrote one of our entries: one of this loop, or another
	// name, whose deletions an operator has to approve. If it returns an empty name, the
	// head of the group is tried. nil: no entry names its bridge.
	Author func(registry.Entry) string

	// OwnerName returns the name of another owner; empty if only its mark is known. It
	// must not block; nil: no name is known.
	OwnerName func(mark string) string

	// Differ returns why another replica may claim entries that this one does not; empty
	// if all are configured the same. nil: there is no other replica.
	Differ func() string

	// Observe and OnEvent are called from the loop's goroutine, with every call and hold,
	// and with every event. They may be nil.
	Observe func(Observation)
	OnEvent func(Event)
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
