// Package dependency keeps what a source knows of the documents that entries
// of its registry refer to and that stand elsewhere: metadata that is stored by
// its revision, or that a provider tells who asks it.
//
// A document is unknown until it was read, whatever the reason: nothing may be
// concluded from an entry that cannot be understood yet. What is known, and what
// is not, is kept for each group alone. Nothing is decoded here.
package dependency

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrMissing is wrapped by the error of a fetch where nobody has stored the
// document yet. Providers of Dubbo may store theirs minutes after themselves.
var ErrMissing = errors.New("is not stored yet")

var errUnread = errors.New("is being read")

// A Result is what the fetch of one document came to. An error that wraps
// registry.ErrRefused says that the document can never be had, so that its
// entry is left out as any other bad input is; every other error leaves it
// unknown.
type Result struct {
	Ref  metadata.Ref
	Text string
	Err  error
}

// A Set is what is known of the documents that the groups of a source depend
// on. It does no I/O and has no clock. One goroutine uses it.
type Set struct {
	retry    registry.Backoff
	groups   map[registry.Group]map[string]*document // by the key of the reference
	waiting  queue                                   // to be fetched, by time
	unsought int                                     // documents without any result since Renew
}

// A document is one dependency.
type document struct {
	ref    metadata.Ref
	text   string
	err    error     // of the last fetch; errUnread before the first
	since  time.Time // of the first of the failures in a row
	fails  int
	due    time.Time
	index  int  // in the queue; -1 outside
	asked  bool // a fetch is under way
	again  bool // it has to be fetched once more after that
	sought bool // there was a result since Renew
}

// known reports whether more fetches can make no difference.
func (d *document) known() bool { return d.err == nil || errors.Is(d.err, registry.ErrRefused) }

// NewSet returns an empty set. A document that could not be fetched is fetched
// again after the waits of retry.
func NewSet(retry registry.Backoff) *Set {
	return &Set{retry: retry, groups: make(map[registry.Group]map[string]*document)}
}

// Want makes refs, which are all of the group, what the group depends on. New
// ones are due at once; what nothing refers to any more is forgotten.
func (s *Set) Want(now time.Time, group registry.Group, refs []metadata.Ref) {
	before := s.groups[group]
	if len(before)+len(refs) == 0 {
		return
	}
	after := make(map[string]*document, len(refs))
	for _, ref := range refs {
		if after[ref.Key] != nil {
			continue
		}
		d := before[ref.Key]
		if d == nil {
			d = &document{ref: ref, err: errUnread, index: -1}
			s.unsought++
			s.schedule(d, now)
		}
		delete(before, ref.Key)
		after[ref.Key] = d
	}
	for _, d := range before {
		s.forget(d)
	}
	s.groups[group] = after
	if len(after) == 0 {
		delete(s.groups, group)
	}
}

func (s *Set) forget(d *document) {
	if d.index >= 0 {
		heap.Remove(&s.waiting, d.index)
	}
	if !d.sought {
		s.unsought--
	}
}

func (s *Set) schedule(d *document, due time.Time) {
	d.due = due
	if d.index >= 0 {
		heap.Fix(&s.waiting, d.index)
	} else {
		heap.Push(&s.waiting, d)
	}
}

// Renew makes everything that is not known due: fetches that were under way
// ended without a result, as they do with their connection.
func (s *Set) Renew(now time.Time) {
	for _, group := range s.groups {
		for _, d := range group {
			d.asked, d.again = false, false
			if !d.known() {
				if d.sought {
					d.sought = false
					s.unsought++
				}
				s.schedule(d, now)
			}
		}
	}
}

// Due returns what has to be fetched by now, and takes each for under way:
// apart what was never fetched, and what failed before.
func (s *Set) Due(now time.Time) (fresh, again []metadata.Ref) {
	for len(s.waiting) > 0 && !s.waiting[0].due.After(now) {
		d := s.waiting[0]
		heap.Remove(&s.waiting, 0)
		d.asked = true
		if d.fails > 0 {
			again = append(again, d.ref)
		} else {
			fresh = append(fresh, d.ref)
		}
	}
	return fresh, again
}

// Next returns when something is due next, false where nothing is.
func (s *Set) Next() (time.Time, bool) {
	if len(s.waiting) == 0 {
		return time.Time{}, false
	}
	return s.waiting[0].due, true
}

// Wants reports whether a document is depended on.
func (s *Set) Wants(ref metadata.Ref) bool { return s.groups[ref.Group][ref.Key] != nil }

// Hint makes a document due that is said to be there by now.
func (s *Set) Hint(now time.Time, ref metadata.Ref) {
	d := s.groups[ref.Group][ref.Key]
	switch {
	case d == nil || d.known():
	case d.asked:
		d.again = true
	default:
		s.schedule(d, now)
	}
}

// Take takes a result in. It reports whether the group tells something else by
// it: it then has to be decoded anew, and Unknown may differ.
func (s *Set) Take(now time.Time, r Result) bool {
	d := s.groups[r.Ref.Group][r.Ref.Key]
	if d == nil || !d.asked {
		return false // forgotten meanwhile
	}
	if !d.sought {
		s.unsought--
	}
	before, again := d.err, d.again
	d.asked, d.again, d.sought, d.text, d.err = false, false, true, r.Text, r.Err
	if d.known() {
		return true
	}
	if d.fails++; d.since.IsZero() {
		d.since = now
	}
	due := now
	if !again {
		due = now.Add(s.retry.After(d.fails))
	}
	s.schedule(d, due)
	return before.Error() != d.err.Error()
}

// Sought reports whether there was a result for everything that is not known,
// since the last Renew.
func (s *Set) Sought() bool { return s.unsought == 0 }

// Documents returns the documents of a group as far as they are known, in
// their order.
func (s *Set) Documents(group registry.Group) []registry.Entry {
	var out []registry.Entry
	for key, d := range s.groups[group] {
		if d.err == nil {
			out = append(out, registry.Entry{Group: group, Key: key, Value: d.text})
		}
	}
	slices.SortFunc(out, registry.Entry.Compare)
	return out
}

// Why returns why a document is not there, nil where it is or nothing depends
// on it.
func (s *Set) Why(ref metadata.Ref) error {
	if d := s.groups[ref.Group][ref.Key]; d != nil {
		return d.err
	}
	return nil
}

// Unknown returns why what a group tells cannot be relied on: the first of its
// documents that is not known, and since when. It is nil where all are.
func (s *Set) Unknown(group registry.Group) error {
	documents := s.groups[group]
	for _, key := range slices.Sorted(maps.Keys(documents)) {
		d := documents[key]
		if d.known() {
			continue
		}
		key = strings.TrimPrefix(key, registry.PartPrefix)
		if d.since.IsZero() {
			return fmt.Errorf("%s %w", key, d.err)
		}
		return fmt.Errorf("%s, tried since %s: %w", key, d.since.UTC().Format(time.RFC3339), d.err)
	}
	return nil
}

// A queue holds documents by the time they are due.
type queue []*document

func (q *queue) Len() int           { return len(*q) }
func (q *queue) Less(i, j int) bool { return (*q)[i].due.Before((*q)[j].due) }

func (q *queue) Swap(i, j int) {
	(*q)[i], (*q)[j] = (*q)[j], (*q)[i]
	(*q)[i].index, (*q)[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	if d, ok := x.(*document); ok {
		d.index = len(*q)
		*q = append(*q, d)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	d.index = -1
	return d
}
