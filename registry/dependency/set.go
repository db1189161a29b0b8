// Package dependency fetches and keeps the documents that entries of a registry refer
// to (Set, Fetcher): metadata that is stored by its revision, or that a provider returns
// if it is asked. It decodes nothing.
//
// A document is unknown until it was read. Entries that refer to it are unknown as well,
// and so is the group that holds them.
package dependency

import (
	"container/heap"
	"errors"
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrMissing is wrapped by the error of a fetch if the document is not stored yet.
// Providers of Dubbo may store theirs minutes after they registered.
var ErrMissing = errors.New("is not stored yet")

// ErrNotHere is ErrMissing of a registry that may not be the one that stores it.
var ErrNotHere = fmt.Errorf("%w; if providers have it in another server or namespace, name that by metadataRegistry of the registry", ErrMissing)

var errUnread = errors.New("is being read")

// A Result is the result of a fetch of one document. If its error wraps
// registry.ErrRefused, the document does not exist and its entry is skipped as bad
// input. After any other error it is unknown.
type Result struct {
	Ref  metadata.Ref
	Text string
	Err  error
}

// Options tune a Set. Only Retry is required.
type Options struct {
	// Retry is the wait before a failed fetch is repeated. A refused one is repeated
	// after Max, and only if something changed.
	Retry registry.Backoff

	// Asker fetches what no lane of a fetcher has; nil: nobody is asked.
	Asker Asker

	// Room reports whether texts of so many bytes may be kept; fewer always may. It
	// is called with all bytes each time. Nil: any may.
	Room func(bytes int64) bool
}

// A Set is the documents that the groups of a source depend on. It does no I/O and has
// no clock. One goroutine uses it.
type Set struct {
	o       Options
	groups  map[registry.Group]map[string]*document // by the key of the reference
	answers map[string]*answer                      // by question
	waiting queue                                   // to be fetched, by time
	pending int                                     // documents without a result since Renew
	bytes   int64                                   // of all texts
}

// A document is one dependency.
type document struct {
	ref      metadata.Ref
	question string    // see Asker.Same; empty: its own
	answer   *answer   // nil if there is an error
	err      error     // of the last fetch; errUnread before the first
	since    time.Time // of the first of the failures in a row
	fails    int
	tried    time.Time // of the last result
	due      time.Time
	index    int  // in the queue; -1: not in it
	fetching bool // a fetch is running
	again    bool // fetch it once more after that
	resolved bool // there was a result since Renew
}

// An answer is a text, and the document by which it was fetched. If nothing depends on
// that one any more, another document with the same question is fetched.
type answer struct {
	text string
	by   *document // nil: it was forgotten
	uses int       // number of documents with this text
}

func (d *document) refused() bool { return errors.Is(d.err, registry.ErrRefused) }

// known reports whether entries that refer to the document can be reported.
func (d *document) known() bool { return d.err == nil || d.refused() }

// confirmed reports whether there is a text whose document was not forgotten.
func (d *document) confirmed() bool { return d.answer != nil && d.answer.by != nil }

// NewSet returns an empty set.
func NewSet(o Options) *Set {
	if o.Asker == nil {
		o.Asker = nobody{}
	}
	if o.Room == nil {
		o.Room = func(int64) bool { return true }
	}
	o.Room(0)
	return &Set{o: o, groups: make(map[registry.Group]map[string]*document), answers: make(map[string]*answer)}
}

// Want sets the dependencies of a group. New ones are due at once unless their question
// has an answer. Others than these are forgotten. Refused ones are due again, because
// the group has changed.
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
			d = s.add(now, ref)
		} else if d.refused() {
			s.retryRefused(d, now)
		}
		delete(before, ref.Key)
		after[ref.Key] = d
	}
	for _, d := range before {
		s.forget(d)
	}
	for _, d := range after {
		if d.err == nil && !d.confirmed() && !d.fetching { // its answer's document was forgotten
			s.schedule(d, now)
		}
	}
	s.groups[group] = after
	if len(after) == 0 {
		delete(s.groups, group)
	}
}

func (s *Set) add(now time.Time, ref metadata.Ref) *document {
	d := &document{ref: ref, question: s.o.Asker.Same(ref), err: errUnread, index: -1}
	s.pending++
	if a := s.answers[d.question]; a != nil {
		s.give(d, a)
	} else {
		s.schedule(d, now)
	}
	return d
}

func (s *Set) forget(d *document) {
	s.unschedule(d)
	s.resolve(d)
	if a := d.answer; a != nil && a.by == d {
		a.by = nil
		delete(s.answers, d.question)
	}
	s.hold(d, nil)
}

func (s *Set) schedule(d *document, due time.Time) {
	d.due = due
	if d.index >= 0 {
		heap.Fix(&s.waiting, d.index)
	} else {
		heap.Push(&s.waiting, d)
	}
}

// retryRefused makes a refused document due, after the longest wait since its result.
func (s *Set) retryRefused(d *document, now time.Time) {
	if d.fetching {
		return
	}
	earliest := d.tried.Add(s.o.Retry.Max)
	if now.Before(earliest) {
		now = earliest
	}
	s.schedule(d, now)
}

func (s *Set) unschedule(d *document) {
	if d.index >= 0 {
		heap.Remove(&s.waiting, d.index)
	}
}

func (s *Set) resolve(d *document) {
	if !d.resolved {
		d.resolved = true
		s.pending--
	}
}

// Renew makes all unknown documents due, after a connection ended and its fetches with
// it.
func (s *Set) Renew(now time.Time) {
	for _, group := range s.groups {
		for _, d := range group {
			d.fetching, d.again = false, false
			switch {
			case d.confirmed():
			case d.refused():
				s.retryRefused(d, now)
			case d.err == nil:
				s.schedule(d, now)
			default:
				if d.resolved {
					d.resolved = false
					s.pending++
				}
				s.schedule(d, now)
			}
		}
	}
}

// Due returns the documents that are due, which are then being fetched: those without
// failures, and those that failed before.
func (s *Set) Due(now time.Time) (fresh, again []metadata.Ref) {
	for len(s.waiting) > 0 && !s.waiting[0].due.After(now) {
		d := s.waiting[0]
		heap.Remove(&s.waiting, 0)
		d.fetching = true
		if d.fails > 0 {
			again = append(again, d.ref)
		} else {
			fresh = append(fresh, d.ref)
		}
	}
	return fresh, again
}

// Next returns when the next document is due; false if none is.
func (s *Set) Next() (time.Time, bool) {
	if len(s.waiting) == 0 {
		return time.Time{}, false
	}
	return s.waiting[0].due, true
}

func (s *Set) document(ref metadata.Ref) *document { return s.groups[ref.Group][ref.Key] }

// Wants reports whether a group depends on a document.
func (s *Set) Wants(ref metadata.Ref) bool { return s.document(ref) != nil }

// Expect makes a document due that is reported to exist now.
func (s *Set) Expect(now time.Time, ref metadata.Ref) {
	d := s.document(ref)
	switch {
	case d == nil || d.err == nil:
	case d.refused():
		s.retryRefused(d, now)
	case d.fetching:
		d.again = true
	default:
		s.schedule(d, now)
	}
}

// Accept stores a result. It reports whether the group has changed by it, and so has
// to be decoded again.
func (s *Set) Accept(now time.Time, r Result) bool {
	d := s.document(r.Ref)
	if d == nil || !d.fetching {
		return false // forgotten meanwhile, or its question has an answer
	}
	again, before, changed := d.again, d.err, false
	d.fetching, d.again, d.tried = false, false, now
	s.resolve(d)
	if r.Err == nil {
		changed, r.Err = s.keep(d, r.Text)
	}
	if r.Err == nil {
		return changed
	}
	s.hold(d, nil)
	d.err = r.Err
	changed = before == nil || before.Error() != d.err.Error()
	if d.known() {
		return changed
	}
	if d.fails++; d.since.IsZero() {
		d.since = now
	}
	due := now
	if !again {
		due = now.Add(s.o.Retry.After(d.fails))
	}
	s.schedule(d, due)
	return changed
}

// keep sets the text of a document and of all with the same question. It reports
// whether any of them had another, and fails if there is no room for it.
func (s *Set) keep(d *document, text string) (changed bool, err error) {
	a := d.answer
	if changed = a == nil || a.text != text; changed {
		s.hold(d, nil)
		if !s.o.Room(s.bytes + int64(len(text))) {
			return false, fmt.Errorf("a document of %d bytes, beside others of %d: %w; raise limits.maxBytes, or select less", len(text), s.bytes, registry.ErrLimit)
		}
		a = &answer{text: text}
	}
	a.by = d
	s.give(d, a)
	if d.question == "" {
		return changed, nil
	}
	s.answers[d.question] = a
	for _, other := range s.groups[d.ref.Group] {
		if other.question == d.question {
			changed = changed || other.answer == nil
			s.give(other, a)
		}
	}
	return changed, nil
}

func (s *Set) give(d *document, a *answer) {
	s.unschedule(d)
	s.resolve(d)
	s.hold(d, a)
	d.fetching, d.again, d.err, d.fails, d.since = false, false, nil, 0, time.Time{}
}

// hold replaces the answer of a document and counts its bytes; nil: none.
func (s *Set) hold(d *document, a *answer) {
	old := d.answer
	if d.answer = a; a != nil {
		if a.uses++; a.uses == 1 {
			s.bytes += int64(len(a.text))
		}
	}
	if old == nil {
		return
	}
	if old.uses--; old.uses == 0 {
		s.bytes -= int64(len(old.text))
		s.o.Room(s.bytes)
	}
}

// Resolved reports whether all documents are known or have a result since the last
// Renew.
func (s *Set) Resolved() bool { return s.pending == 0 }

// A queue has documents in the order in which they are due.
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
