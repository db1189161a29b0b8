// Package dependency keeps what a source knows of the documents that entries
// of its registry refer to and that are elsewhere: metadata that is stored by
// its revision, or that a provider reports who asks it.
//
// A document is unknown until it was read, whatever the reason: nothing may be
// concluded from an entry that cannot be understood yet. What is known, and what
// is not, is kept for each group alone. Nothing is decoded here.
package dependency

import (
	"container/heap"
	"errors"
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrMissing is wrapped by the error of a fetch where nobody has stored the
// document yet. Providers of Dubbo may store theirs minutes after themselves.
var ErrMissing = errors.New("is not stored yet")

var errUnread = errors.New("is being read")

// A Result is what the fetch of one document came to. An error that wraps
// registry.ErrRefused says that the document cannot be had, so that its entry is
// left out as any other bad input is; every other error leaves it unknown.
type Result struct {
	Ref  metadata.Ref
	Text string
	Err  error
}

// Options tune a Set. Retry is all it needs.
type Options struct {
	// Retry says when a document is fetched again that could not be. What was
	// refused waits for its longest time, and for a cause.
	Retry registry.Backoff

	// Asker gets what no lane of a fetcher has; nil: nobody is asked.
	Asker Asker

	// Room is told how many bytes the texts take, and reports whether these may
	// be kept; fewer always may. Nil: any may.
	Room func(bytes int64) bool
}

// A Set is what is known of the documents that the groups of a source depend
// on. It does no I/O and has no clock. One goroutine uses it.
type Set struct {
	o        Options
	groups   map[registry.Group]map[string]*document // by the key of the reference
	answers  map[string]*answer                      // by question, of those who are depended on
	waiting  queue                                   // to be fetched, by time
	unsought int                                     // documents without any result since Renew
	bytes    int64                                   // of all texts
}

// A document is one dependency.
type document struct {
	ref      metadata.Ref
	question string    // empty: nobody else's
	answer   *answer   // nil where there is an error
	err      error     // of the last fetch; errUnread before the first
	since    time.Time // of the first of the failures in a row
	fails    int
	tried    time.Time // when the last result came
	due      time.Time
	index    int  // in the queue; -1 outside
	asked    bool // a fetch is under way
	again    bool // it has to be fetched once more after that
	sought   bool // there was a result since Renew
}

// An answer is a text, and who stands for it: once that one is depended on no
// more, another is asked.
type answer struct {
	text string
	by   *document // nil: nobody does
	uses int       // documents whose text it is
}

func (d *document) refused() bool { return errors.Is(d.err, registry.ErrRefused) }

// known reports whether its entries can be reported.
func (d *document) known() bool { return d.err == nil || d.refused() }

// confirmed reports whether there is a text that somebody stands for.
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

// Want makes refs, which are all of the group, what the group depends on. New
// ones are due at once unless another gave their answer; what nothing refers to
// any more is forgotten. What was refused is due anew: the group has changed.
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
			s.slowly(d, now)
		}
		delete(before, ref.Key)
		after[ref.Key] = d
	}
	for _, d := range before {
		s.forget(d)
	}
	for _, d := range after {
		if d.err == nil && !d.confirmed() && !d.asked { // who gave the answer is among those forgotten
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
	s.unsought++
	if a := s.answers[d.question]; a != nil {
		s.give(d, a)
	} else {
		s.schedule(d, now)
	}
	return d
}

func (s *Set) forget(d *document) {
	s.unschedule(d)
	s.found(d)
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

// slowly makes what was refused due, no sooner than the longest wait after it was.
func (s *Set) slowly(d *document, now time.Time) {
	if d.asked {
		return
	}
	if soonest := d.tried.Add(s.o.Retry.Max); now.Before(soonest) {
		now = soonest
	}
	s.schedule(d, now)
}

func (s *Set) unschedule(d *document) {
	if d.index >= 0 {
		heap.Remove(&s.waiting, d.index)
	}
}

// found notes that there was a result.
func (s *Set) found(d *document) {
	if !d.sought {
		d.sought = true
		s.unsought--
	}
}

// Renew makes everything that is not known due: fetches that were under way
// ended without a result, as they do with their connection.
func (s *Set) Renew(now time.Time) {
	for _, group := range s.groups {
		for _, d := range group {
			d.asked, d.again = false, false
			switch {
			case d.confirmed():
			case d.refused():
				s.slowly(d, now)
			case d.err == nil:
				s.schedule(d, now)
			default:
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

func (s *Set) of(ref metadata.Ref) *document { return s.groups[ref.Group][ref.Key] }

// Wants reports whether a document is depended on.
func (s *Set) Wants(ref metadata.Ref) bool { return s.of(ref) != nil }

// Expect makes a document due that is said to be there by now.
func (s *Set) Expect(now time.Time, ref metadata.Ref) {
	d := s.of(ref)
	switch {
	case d == nil || d.err == nil:
	case d.refused():
		s.slowly(d, now)
	case d.asked:
		d.again = true
	default:
		s.schedule(d, now)
	}
}

// Accept takes a result in. It reports whether the group tells something else by
// it: it then has to be decoded anew, and Unknown may differ.
func (s *Set) Accept(now time.Time, r Result) bool {
	d := s.of(r.Ref)
	if d == nil || !d.asked {
		return false // forgotten meanwhile, or another gave its answer
	}
	again, before, changed := d.again, d.err, false
	d.asked, d.again, d.tried = false, false, now
	s.found(d)
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

// keep makes a text that of a document, and of all with its question: nobody
// stands for another. It reports whether any of them had another, and fails where
// there is no room for it.
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

// give makes an answer that of a document.
func (s *Set) give(d *document, a *answer) {
	s.unschedule(d)
	s.found(d)
	s.hold(d, a)
	d.asked, d.again, d.err, d.fails, d.since = false, false, nil, 0, time.Time{}
}

// hold makes a document use an answer in place of the one that it has; nil: none.
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

// Sought reports whether there was a result for everything that is not known,
// since the last Renew.
func (s *Set) Sought() bool { return s.unsought == 0 }

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
