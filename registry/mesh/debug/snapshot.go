package debug

import (
	"errors"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// maxSkipped is how many faults a Snapshot lists.
const maxSkipped = 1000

// Snapshot is what is known at one moment. It is never changed once handed
// out.
type Snapshot struct {
	// Mapping holds every key that is not known to be gone, also while Err is
	// set.
	Mapping metadata.Mapping

	// Waiting is how many of the claims in Mapping are of clients that went, and
	// stay until these could have come back; of more than 10,000 the oldest go.
	Waiting int

	// Complete says that every listed replica has answered once: what Mapping
	// does not have was published by nobody. Until then it may just not be
	// known.
	Complete bool

	// Restarting is until when clients may be on their way back to a replica that
	// came up less than ConnectionGrace ago; zero where none did. A key that is
	// missing, and was never in Mapping, may yet come.
	Restarting time.Time

	// Unread says that single clients cannot be read, and why: keys that are
	// missing may be theirs. nil where all can.
	Unread error

	// Err says why the last reading was not complete; nil when it was. It wraps
	// an *Error for each replica that could not be read.
	Err error

	// Skipped are what single clients publish and nobody can read, at most 1000
	// of FaultTotal, in order.
	Skipped      []metadata.PublicationError
	SkippedTotal int

	Replicas []ReplicaStatus // in order of address
	At       time.Time       // when this came to be known
}

// ReplicaStatus is how one replica of istiod does.
type ReplicaStatus struct {
	Replica    string
	Answered   bool      // at least once, since it was listed
	Unlisted   bool      // it is listed no more, and asked on as long as it answers
	At         time.Time // of the last good reading
	Clients    int       // connected then
	Publishers int       // of them those that publish service keys
	Own        bool      // one of OwnNodes was among them
	Err        error     // an *Error, why the last reading failed; nil when it did not
}

// news reports whether a snapshot tells anything that the one before did not.
// Counts and times that move all the time are no news, but for many that wait.
func (s Snapshot) news(before Snapshot) bool {
	return s.Complete != before.Complete || !s.Restarting.Equal(before.Restarting) ||
		errorKey(s.Err) != errorKey(before.Err) || errorKey(s.Unread) != errorKey(before.Unread) ||
		s.SkippedTotal != before.SkippedTotal || !slices.Equal(s.Skipped, before.Skipped) ||
		!slices.EqualFunc(s.Replicas, before.Replicas, func(a, b ReplicaStatus) bool {
			return a.Replica == b.Replica && a.Answered == b.Answered && a.Unlisted == b.Unlisted && errorKey(a.Err) == errorKey(b.Err)
		}) ||
		bits.Len(uint(s.Waiting/manyWait)) != bits.Len(uint(before.Waiting/manyWait)) || !s.Mapping.Equal(before.Mapping)
}

// manyWait is of how many claims that wait it is told how many times as many
// there are.
const manyWait = 64

// errorKey is what two errors share that mean the same: texts of the operating
// system differ in port numbers.
func errorKey(err error) string {
	if err == nil {
		return ""
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var keys []string
		for _, e := range many.Unwrap() {
			keys = append(keys, errorKey(e))
		}
		return strings.Join(keys, "\n")
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return string(e.Cause) + " " + e.Where
	}
	return err.Error()
}

// skippedOf returns what could not be read in all parts, in order.
func skippedOf(watches map[string]*watch) (listed []metadata.PublicationError, total int) {
	var all []metadata.PublicationError
	for _, name := range slices.Sorted(maps.Keys(watches)) {
		p := watches[name].part
		if p == nil || !watches[name].counts() {
			continue
		}
		all = append(all, p.skipped...)
		for _, c := range p.clients {
			all = append(all, c.skipped...)
		}
	}
	slices.SortFunc(all, compareSkipped)
	return all[:min(len(all), maxSkipped)], len(all)
}
