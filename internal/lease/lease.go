// Package lease elects one of several replicas the leader of a target, who
// writes there. The others are standbys, which have read everything. What they
// share is one record for each target, in a registry or cluster that the user
// already runs. It is changed by compare-and-swap alone.
//
// A leader may write for two thirds of its ttl after it last renewed its entry
// in the record. Another replica leads once it saw that entry unchanged for the
// whole ttl. Both measure on their own monotonic clock, so that no two clocks
// have to agree on more than how long a second is. A leader whose machine was
// suspended may believe in its lease for a moment: its term fences its writes.
//
// Goroutines: none but those that call Run and Leave.
package lease

import (
	"context"
	"log/slog"
	"time"
)

// A Store keeps the record of one target. Its calls may take as long as their
// context lets them.
type Store interface {
	// Load returns the record and the version that Save asks for; no record
	// and no error where there is none yet.
	Load(ctx context.Context) (record []byte, version string, err error)

	// Save replaces the record if it still has the version, and makes it
	// where the version is empty. It returns registry.ErrConflict where
	// another was faster.
	Save(ctx context.Context, record []byte, version string) error
}

// Options tune an Elector.
type Options struct {
	Store    Store
	Target   string        // what is led: among several that are ready, each target prefers another
	Identity string        // of this process and no other
	TTL      time.Duration // after which a replica that is silent is dead, up to MaxTTL
	Reaches  func() bool   // whether the target is in reach, without which nobody is ready; must not block
	Log      *slog.Logger  // nil: none
}

// MaxTTL is the largest ttl that a replica believes another to have.
const MaxTTL = time.Hour

// beat is how often a replica renews its entry.
func (o Options) beat() time.Duration { return o.TTL / 5 }

// valid is how long a leader may write after it renewed its entry. The rest of
// the ttl is for calls under way and clocks that differ.
func (o Options) valid() time.Duration { return o.TTL * 2 / 3 }

// leastPatience is how long a leader may take to get ready before another leads.
// It doubles each time in a row, up to 32 times as long.
func (o Options) leastPatience() time.Duration { return 8 * o.TTL }
