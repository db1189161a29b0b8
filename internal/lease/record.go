package lease

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"
)

// format is the form of the record that this package reads and writes.
const format = 1

// A record is what the replicas of a target share. TestRecordKeepsItsFormat shows
// one as it is stored.
type record struct {
	Format  int               `json:"format"`
	Leader  string            `json:"leader,omitempty"`
	Term    int64             `json:"term"` // rises with each leader, and is what writes are fenced by
	Members map[string]member `json:"members"`
}

type member struct {
	Beat    int64  `json:"beat"`              // counted up; one that stands still is dead
	TTL     int64  `json:"ttl_ms"`            // how long that takes, in milliseconds
	Ready   int64  `json:"ready,omitempty"`   // the term in which it did what its role asks for
	Leaving bool   `json:"leaving,omitempty"` // it is about to end
	Config  string `json:"config,omitempty"`  // tells what it is configured to write; empty: it does not say
}

// maxAhead is how far a term may be ahead of a clock in milliseconds, a century:
// clocks that are wrong are so by decades. A term beyond it would leave none
// above itself.
const maxAhead = 100 * 366 * 24 * 60 * 60 * 1000

// parse returns the record that a text is, and whether it is one that any version
// wrote. The error tells that a later version wrote it.
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

// candidate returns who is to lead a target next, empty where nobody stays: one
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
