package debug

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// Snapshot is what is known at one moment. It is never changed once reported.
type Snapshot struct {
	Mapping metadata.Mapping // every key that is not known to be gone, also while Err is set

	// Complete says that every listed replica answered once: no client publishes what
	// is not in Mapping, except before Restarting and of Unread clients.
	Complete bool

	Restarting time.Time // until when clients may come back to a replica that came up lately; zero: none
	Unread     error     // why single clients cannot be read
	Err        error     // why the last reading was incomplete; it wraps an *Error for each replica
	Waiting    int       // claims in Mapping of disconnected clients; of more than 10,000 the oldest are dropped

	Skipped  []metadata.PublicationError // what could not be read, at most 1000, in order
	Replicas []ReplicaStatus             // in order of address
	At       time.Time                   // when this was read
}

// ReplicaStatus is the status of one replica of istiod.
type ReplicaStatus struct {
	Replica  string
	Answered bool      // at least once, since it was listed
	Unlisted bool      // it is no longer listed, and read while it answers
	At       time.Time // of the last successful reading
	Clients  int       // connected then
	Own      bool      // one of OwnNodes was among them
	Err      error     // an *Error, why the last reading failed
}

// differs reports whether two snapshots differ in more than counts and times that
// change all the time.
func (s *Snapshot) differs(before *Snapshot) bool {
	return s.Complete != before.Complete || !s.Restarting.Equal(before.Restarting) ||
		ErrorKey(s.Err) != ErrorKey(before.Err) || ErrorKey(s.Unread) != ErrorKey(before.Unread) ||
		!slices.Equal(s.Skipped, before.Skipped) ||
		!slices.EqualFunc(s.Replicas, before.Replicas, func(a, b ReplicaStatus) bool {
			return a.Replica == b.Replica && a.Answered == b.Answered && a.Unlisted == b.Unlisted && ErrorKey(a.Err) == ErrorKey(b.Err)
		}) ||
		bits.Len(uint(s.Waiting/manyWaiting)) != bits.Len(uint(before.Waiting/manyWaiting)) || !s.Mapping.Equal(before.Mapping)
}

// manyWaiting is from how many waiting claims each doubling is reported.
const manyWaiting = 64

// ErrorKey is the same for errors that mean the same: texts of the operating system
// differ in port numbers.
func ErrorKey(err error) string {
	if err == nil {
		return ""
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var keys []string
		for _, e := range joined.Unwrap() {
			keys = append(keys, ErrorKey(e))
		}
		return strings.Join(keys, "\n")
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return string(e.Cause) + " " + e.Where + " " + withoutDigits(e.Err.Error())
	}
	return err.Error()
}

func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// maxSkipped is how many keys that cannot be read a Snapshot lists.
const maxSkipped = 1000

// SetSkipped sorts what could not be read, and sets Skipped.
func (s *Snapshot) SetSkipped(all []metadata.PublicationError) {
	slices.SortFunc(all, CompareSkipped)
	s.Skipped = all[:min(len(all), maxSkipped)]
}

// CompareSkipped orders what could not be read.
func CompareSkipped(a, b metadata.PublicationError) int {
	return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Reason, b.Reason))
}
