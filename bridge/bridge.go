// Package bridge keeps a target in step with the tables of one or more
// sources: it plans, writes the difference, and holds deletions back until
// both sides are known well enough.
package bridge

import (
	"log/slog"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Project turns a service into the entries that the target should hold for
// it. It must be pure. An error leaves the service's entries as they are.
type Project func(*registry.Service) ([]registry.Entry, error)

// Bridge is one configured way from a table to the target of a Loop.
type Bridge struct {
	Name    string
	Table   *registry.Table
	Select  func(*registry.Service) error // why a service is left out; nil takes all
	Project Project
	Policy  Policy
	Guard   Guard
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
type Mode string

// The modes of a guard. The zero value means GuardEnforce.
const (
	GuardEnforce Mode = "enforce"
	GuardWarn    Mode = "warn"
	GuardOff     Mode = "off"
)

// Guard says how reluctantly a bridge deletes. See DefaultGuard.
type Guard struct {
	Mode         Mode
	Share        float64       // of a bridge's entries: more removals than that within Window are held
	AtLeast      int           // removals that may always go within Window
	Window       time.Duration // over which removals are counted
	LastEndpoint time.Duration // how long the last entry of a group waits
	Settle       time.Duration // how long a leftover waits once the source is complete
	Confirm      time.Duration // after which a fresh reading of the source may confirm a hold
}

// DefaultGuard returns the guard that a bridge has unless it is told
// otherwise.
func DefaultGuard() Guard {
	return Guard{
		Mode: GuardEnforce, Share: 0.3, AtLeast: 10, Window: 5 * time.Minute,
		LastEndpoint: 30 * time.Second, Settle: time.Minute, Confirm: 10 * time.Minute,
	}
}

// Options tune a Loop.
type Options struct {
	Target   string        // the target's name in the configuration
	Owner    string        // as registry.Held.Owner tells it: marks what the loop may change and delete
	Workers  int           // calls to the target at a time
	Quiet    time.Duration // how long followers of a first change are gathered
	MaxQuiet time.Duration // how long a group that never stops changing waits at most
	Refresh  time.Duration // how long a belief about a group is trusted before it is read again
	Retry    Backoff
	Log      *slog.Logger
	Observe  func(Observation) // told of every call and hold, from the loop's goroutine; may be nil
}

// Backoff is the wait between attempts: Min, doubled up to Max.
type Backoff struct{ Min, Max time.Duration }
