// Package lease elects one of several replicas the leader of a target. Only the leader
// writes to the target. The other replicas are standbys, which have read everything. The
// replicas share one lease record for each target, in a registry or cluster that the user
// already runs. The record is only changed by compare-and-swap.
//
// A leader may write for two thirds of its ttl after it last renewed its entry in the
// record. Another replica leads once it saw that entry unchanged for the whole ttl. Each
// replica measures this with its own monotonic clock. So clocks must only agree on the
// length of a second. A leader whose machine was suspended may trust its expired lease
// for a moment: its term fences its writes.
//
// The package starts no goroutines. Those of Run and Leave are the callers'.
package lease

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// A Store stores the lease record of one target. Its calls may block until their context
// ends.
type Store interface {
	// Load returns the record and the version that Save requires. It returns no record
	// and no error if there is none yet.
	Load(ctx context.Context) (record []byte, version string, err error)

	// Save replaces the record if it still has the version, or creates it if the
	// version is empty. It returns registry.ErrConflict if another replica was faster.
	Save(ctx context.Context, record []byte, version string) error
}

// Options tune an Elector.
type Options struct {
	Store Store

	// Target is the name of the led target. Each target prefers another of several
	// ready replicas, so that the leaders are spread.
	Target string

	// Identity is the unique name of this replica.
	Identity string

	// TTL is the time after which a silent replica counts as dead, at most MaxTTL.
	TTL time.Duration

	// Reaches reports whether the target is reachable. A replica is only ready while
	// it is. It must not block.
	Reaches func() bool

	Log *slog.Logger // may be nil
}

// MaxTTL is the maximum ttl that a replica accepts in the entry of another.
const MaxTTL = time.Hour

// beat is how often a replica renews its entry.
func (o Options) beat() time.Duration { return o.TTL / 5 }

// valid is how long a leader may write after it renewed its entry. The remaining third of
// the ttl is for calls in flight and differences of clocks.
func (o Options) valid() time.Duration { return o.TTL * 2 / 3 }

// minPatience is how long a leader has to become ready before another replica leads. It
// doubles with each consecutive time, up to 32 times as long.
func (o Options) minPatience() time.Duration { return 8 * o.TTL }

// format is the version of the record's form that this package reads and writes.
const format = 1

// A leaseRecord is the state that the replicas of a target share. TestRecord_Format shows
// its stored form.
type leaseRecord struct {
	Format  int               `json:"format"`
	Leader  string            `json:"leader,omitempty"`
	Term    int64             `json:"term"` // rises with each leader, and fences writes
	Members map[string]member `json:"members"`
}

// A member is the entry of one replica.
type member struct {
	Beat    int64  `json:"beat"`              // a counter; a member whose beat does not change is dead
	TTL     int64  `json:"ttl_ms"`            // the time after which it is dead, in milliseconds
	Ready   int64  `json:"ready,omitempty"`   // the last term in which it was ready for its role
	Leaving bool   `json:"leaving,omitempty"` // it is about to end
	Config  string `json:"config,omitempty"`  // see Elector.Configure; empty if it is not reported
}

// maxAhead is how far a term may be ahead of the clock in milliseconds: a century, since
// wrong clocks are wrong by decades. Above a larger term there might be no higher one.
const maxAhead = 100 * 366 * 24 * 60 * 60 * 1000

// parseRecord parses a record, and reports whether a replica wrote it. It fails if the
// record is from a later version.
func parseRecord(text []byte, now time.Time) (r leaseRecord, valid bool, err error) {
	valid = json.Unmarshal(text, &r) == nil
	if r.Format != format && r.Format != 0 {
		return r, false, fmt.Errorf("lease record has format %d, this version supports %d", r.Format, format)
	}
	valid = valid && r.Format == format && r.Term >= 0 && r.Term <= now.UnixMilli()+maxAhead
	for _, m := range r.Members {
		valid = valid && m.TTL >= 0 && m.TTL <= MaxTTL.Milliseconds()
	}
	return r, valid, nil
}

// has reports whether a replica is a member.
func (r leaseRecord) has(name string) bool {
	_, is := r.Members[name]
	return is
}

// ready reports whether a member is ready for its role in the current term.
func (r leaseRecord) ready(name string) bool {
	return r.Term != 0 && r.Members[name].Ready == r.Term
}

// candidate returns the member that is to lead a target next. It is empty if all members
// leave. A ready member is preferred. Among equals the choice is the same for all
// replicas, and differs between targets.
func (r leaseRecord) candidate(target string) (name string) {
	var highest []byte
	for other, m := range r.Members {
		rank := sha256.Sum256([]byte(target + "\x00" + other))
		switch nameReady, otherReady := r.ready(name), r.ready(other); {
		case m.Leaving, nameReady && !otherReady:
		case otherReady && !nameReady, bytes.Compare(rank[:], highest) > 0:
			name, highest = other, rank[:]
		}
	}
	return name
}

// dispensable reports whether a leaving member may be removed: another member leads and is
// ready, or all members leave.
func (r leaseRecord) dispensable(name string) bool {
	return r.candidate("") == "" || r.Leader != name && r.ready(r.Leader)
}
