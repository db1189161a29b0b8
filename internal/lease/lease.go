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
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// A Store keeps the record of one target. Its calls may take as long as their
// context lets them.
type Store interface {
	// Load returns the record and the version that Save asks for; no record
	// and no error if there is none yet.
	Load(ctx context.Context) (record []byte, version string, err error)

	// Save replaces the record if it still has the version, and makes it
	// if the version is empty. It returns registry.ErrConflict if
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
// the ttl is for calls in flight and clocks that differ.
func (o Options) valid() time.Duration { return o.TTL * 2 / 3 }

// leastPatience is how long a leader has to get ready before another leads.
// It doubles each time in a row, up to 32 times as long.
func (o Options) leastPatience() time.Duration { return 8 * o.TTL }

// format is the form of the record that this package reads and writes.
const format = 1

// A record is what the replicas of a target share. TestRecord_Format shows
// one as it is stored.
type record struct {
	Format  int               `json:"format"`
	Leader  string            `json:"leader,omitempty"`
	Term    int64             `json:"term"` // rises with each leader, and is what writes are fenced by
	Members map[string]member `json:"members"`
}

type member struct {
	Beat    int64  `json:"beat"`              // counted up; one that does not change is dead
	TTL     int64  `json:"ttl_ms"`            // after which it is dead, in milliseconds
	Ready   int64  `json:"ready,omitempty"`   // the term in which it did what its role asks for
	Leaving bool   `json:"leaving,omitempty"` // it is about to end
	Config  string `json:"config,omitempty"`  // reports what it is configured to write; empty: it does not say
}

// maxAhead is how far a term may be ahead of a clock in milliseconds, a century:
// clocks that are wrong are so by decades. A term beyond it would leave none
// above itself.
const maxAhead = 100 * 366 * 24 * 60 * 60 * 1000

// parse returns the record that a text is, and whether it is one that any version
// wrote. The error says that a later version wrote it.
func parse(text []byte, now time.Time) (r record, sound bool, err error) {
	sound = json.Unmarshal(text, &r) == nil
	if r.Format != format && r.Format != 0 {
		return r, false, fmt.Errorf("the record of the replicas has format %d, this version knows %d", r.Format, format)
	}
	sound = sound && r.Format == format && r.Term >= 0 && r.Term <= now.UnixMilli()+maxAhead
	for _, m := range r.Members {
		sound = sound && m.TTL >= 0 && m.TTL <= MaxTTL.Milliseconds()
	}
	return r, sound, nil
}

// has reports whether a replica is a member.
func (r record) has(name string) bool {
	_, is := r.Members[name]
	return is
}

// ready reports whether a member did what its role in the present term asks for.
func (r record) ready(name string) bool {
	return r.Term != 0 && r.Members[name].Ready == r.Term
}

// candidate returns who is to lead a target next, empty if nobody stays: one
// that is ready if there is any, and of several the same one for all replicas,
// but another for each target.
func (r record) candidate(target string) (name string) {
	var highest []byte
	for other, m := range r.Members {
		rank := sha256.Sum256([]byte(target + "\x00" + other))
		switch ready, is := r.ready(name), r.ready(other); {
		case m.Leaving, ready && !is:
		case is && !ready, bytes.Compare(rank[:], highest) > 0:
			name, highest = other, rank[:]
		}
	}
	return name
}

// dispensable reports whether nothing depends on a member that leaves: another
// leads and is ready, or nobody else stays.
func (r record) dispensable(name string) bool {
	return r.candidate("") == "" || r.Leader != name && r.ready(r.Leader)
}
