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

// Snapshot is the mapping at one moment, and how reliable it is. It is immutable.
type Snapshot struct {
	// Mapping has every key whose end was not observed, also while Err is set.
	Mapping metadata.Mapping

	// Complete means that every listed replica answered at least once. Then Mapping has all
	// published keys, except those of clients that may still reconnect (Restarting) or cannot
	// be read (Unread).
	Complete bool

	// Restarting is the time until which clients may still reconnect to a restarted replica.
	// It is zero if no replica restarted recently.
	Restarting time.Time

	Unread error // why some clients cannot be read
	Err    error // why the last read was incomplete; it wraps an *Error for each failed replica

	// Waiting is the number of claims in Mapping that no connected client publishes. Above
	// 10,000 the oldest are dropped.
	Waiting int

	Skipped  []metadata.PublicationError // keys that cannot be parsed, at most 1000, sorted
	Replicas []ReplicaStatus             // sorted by address
	At       time.Time
}

// ReplicaStatus is the status of one replica of istiod.
type ReplicaStatus struct {
	Replica  string
	Answered bool      // at least once since it was listed
	Unlisted bool      // it is no longer listed, but still read while it answers
	At       time.Time // of the last successful read
	Clients  int       // connected at that time
	Own      bool      // one of OwnNodes was connected at that time
	Err      error     // an *Error: why the last read failed
}

// differs reports whether two snapshots differ in more than counts and times that change all
// the time.
func (s *Snapshot) differs(before *Snapshot) bool {
	return s.Complete != before.Complete || !s.Restarting.Equal(before.Restarting) ||
		ErrorKey(s.Err) != ErrorKey(before.Err) || ErrorKey(s.Unread) != ErrorKey(before.Unread) ||
		!slices.Equal(s.Skipped, before.Skipped) ||
		!slices.EqualFunc(s.Replicas, before.Replicas, func(a, b ReplicaStatus) bool {
			return a.Replica == b.Replica && a.Answered == b.Answered &&
				a.Unlisted == b.Unlisted && ErrorKey(a.Err) == ErrorKey(b.Err)
		}) ||
		bits.Len(uint(s.Waiting/waitingUnit)) != bits.Len(uint(before.Waiting/waitingUnit)) ||
		!s.Mapping.Equal(before.Mapping)
}

// waitingUnit is the number of waiting claims from which each doubling is reported.
const waitingUnit = 64

// ErrorKey returns a key that is equal for errors with the same cause. Texts of the operating
// system differ in port numbers.
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

// maxSkipped bounds the unparsable keys that a Snapshot lists.
const maxSkipped = 1000

// SetSkipped sorts the keys that cannot be parsed, and sets Skipped.
func (s *Snapshot) SetSkipped(all []metadata.PublicationError) {
	slices.SortFunc(all, CompareSkipped)
	s.Skipped = all[:min(len(all), maxSkipped)]
}

// CompareSkipped compares by client, text and reason.
func CompareSkipped(a, b metadata.PublicationError) int {
	return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Reason, b.Reason))
}
