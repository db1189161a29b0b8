// Package dependency fetches and caches the documents that entries of a registry refer
// to (Set, Fetcher). A document is metadata that is stored by its revision, or that a
// provider returns on request. The package decodes nothing.
//
// A document is unknown until it is read. Entries that refer to an unknown document are
// unknown as well, and so is their group.
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
// Dubbo providers may store it minutes after they registered.
var ErrMissing = errors.New("is not stored yet")

// ErrNotHere is the ErrMissing of a registry that may not be the one in which providers
// store documents.
var ErrNotHere = fmt.Errorf("%w; if providers store it in another server or namespace, "+
	"set metadataRegistry of the registry to that one", ErrMissing)

var errUnread = errors.New("is being read")

// A Result is the result of a fetch of one document. If the error wraps
// registry.ErrRefused, the document does not exist, and its entry is skipped as bad
// input. After any other error the document is unknown.
type Result struct {
	Ref  metadata.Ref
	Text string
	Err  error
}

// Options tune a Set. Only Retry is required.
type Options struct {
	// Retry is the wait before a failed fetch is repeated. A refused fetch is
	// repeated after Max, and only if something changed.
	Retry registry.Backoff

	// Asker fetches the documents that no lane of a fetcher has. If it is nil, these
	// documents are refused.
	Asker Asker

	// Room reports whether texts of the given total size may be kept. It must accept
	// a size smaller than the last one. Nil accepts every size.
	Room func(bytes int64) bool
}

// A Set is the documents that the groups of a source depend on. It does no I/O and has
// no clock. Only one goroutine may use it.
type Set struct {
	o       Options
	groups  map[registry.Group]map[string]*document // by the key of the reference
	answers map[string]*answer                      // by question
	waiting queue                                   // to be fetched, by time
	pending int                                     // number of documents without a result since Renew
	bytes   int64                                   // of all texts
}

// A document is one dependency.
type document struct {
	ref      metadata.Ref
	question string // see Asker.Question

	// The result.
	answer       *answer   // nil if there is an error
	err          error     // of the last fetch; errUnread before the first one
	failingSince time.Time // the first of the consecutive failures
	fails        int       // number of consecutive failures
	triedAt      time.Time // the last result
	resolved     bool      // there was a result since Renew

	// The fetch.
	due        time.Time
	queueIndex int  // -1 if it is not in the queue
	fetching   bool // a fetch is running
	refetch    bool // fetch it again after the running fetch
}

// An answer is a text, and the document for which it was fetched. If nothing depends on
// that document any more, another one with the same question is fetched.
type answer struct {
	text       string
	fetchedFor *document // nil if it was forgotten
	uses       int       // number of documents with this text
}

func (d *document) refused() bool { return errors.Is(d.err, registry.ErrRefused) }

// known reports whether entries that refer to the document can be reported.
func (d *document) known() bool { return d.err == nil || d.refused() }

// confirmed reports whether there is a text, and the document for which it was fetched
// was not forgotten.
func (d *document) confirmed() bool { return d.answer != nil && d.answer.fetchedFor != nil }

// NewSet returns an empty set.
func NewSet(o Options) *Set {
	if o.Asker == nil {
		o.Asker = noAsker{}
	}
	if o.Room == nil {
		o.Room = func(int64) bool { return true }
	}
	o.Room(0)
	return &Set{o: o, groups: make(map[registry.Group]map[string]*document), answers: make(map[string]*answer)}
}

// Want sets the dependencies of a group and forgets its other documents. New documents
// are due at once unless their question has an answer. Refused documents are due again,
// because the group has changed.
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
			d = s.newDocument(now, ref)
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
		if d.err == nil && !d.confirmed() && !d.fetching { // the document of its answer was forgotten
			s.schedule(d, now)
		}
	}
	s.groups[group] = after
	if len(after) == 0 {
		delete(s.groups, group)
	}
}

func (s *Set) newDocument(now time.Time, ref metadata.Ref) *document {
	d := &document{ref: ref, question: s.o.Asker.Question(ref), err: errUnread, queueIndex: -1}
	s.pending++
	if a := s.answers[d.question]; a != nil {
		s.resolveWith(d, a)
	} else {
		s.schedule(d, now)
	}
	return d
}

func (s *Set) forget(d *document) {
	s.unschedule(d)
	s.resolve(d)
	if a := d.answer; a != nil && a.fetchedFor == d {
		a.fetchedFor = nil
		delete(s.answers, d.question)
	}
	s.setAnswer(d, nil)
}

func (s *Set) schedule(d *document, due time.Time) {
	d.due = due
	if d.queueIndex >= 0 {
		heap.Fix(&s.waiting, d.queueIndex)
	} else {
		heap.Push(&s.waiting, d)
	}
}

// retryRefused makes a refused document due after the longest wait since its result.
func (s *Set) retryRefused(d *document, now time.Time) {
	if d.fetching {
		return
	}
	earliest := d.triedAt.Add(s.o.Retry.Max)
	if now.Before(earliest) {
		now = earliest
	}
	s.schedule(d, now)
}

func (s *Set) unschedule(d *document) {
	if d.queueIndex >= 0 {
		heap.Remove(&s.waiting, d.queueIndex)
	}
}

// resolve counts the first result of a document since Renew.
func (s *Set) resolve(d *document) {
	if !d.resolved {
		d.resolved = true
		s.pending--
	}
}

// Renew makes all unknown documents due. It is called after a connection ended, together
// with its fetches.
func (s *Set) Renew(now time.Time) {
	for _, group := range s.groups {
		for _, d := range group {
			d.fetching, d.refetch = false, false
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

// Due returns the documents that are due: those without failures, and those to repeat
// after a failure. They count as being fetched until Accept.
func (s *Set) Due(now time.Time) (fresh, repeated []metadata.Ref) {
	for len(s.waiting) > 0 && !s.waiting[0].due.After(now) {
		d := s.waiting[0]
		heap.Remove(&s.waiting, 0)
		d.fetching = true
		if d.fails > 0 {
			repeated = append(repeated, d.ref)
		} else {
			fresh = append(fresh, d.ref)
		}
	}
	return fresh, repeated
}

// Next returns the time at which the next document is due; false if none is waiting.
func (s *Set) Next() (time.Time, bool) {
	if len(s.waiting) == 0 {
		return time.Time{}, false
	}
	return s.waiting[0].due, true
}

func (s *Set) document(ref metadata.Ref) *document { return s.groups[ref.Group][ref.Key] }

// Wants reports whether a group depends on a document.
func (s *Set) Wants(ref metadata.Ref) bool { return s.document(ref) != nil }

// Expect makes a document due, because it is reported to exist now.
func (s *Set) Expect(now time.Time, ref metadata.Ref) {
	d := s.document(ref)
	switch {
	case d == nil || d.err == nil:
	case d.refused():
		s.retryRefused(d, now)
	case d.fetching:
		d.refetch = true
	default:
		s.schedule(d, now)
	}
}

// Accept stores a result. It reports whether the group has changed and so must be
// decoded again.
func (s *Set) Accept(now time.Time, r Result) bool {
	d := s.document(r.Ref)
	if d == nil || !d.fetching {
		return false // it was forgotten, or its question was answered
	}
	refetch, before, changed := d.refetch, d.err, false
	d.fetching, d.refetch, d.triedAt = false, false, now
	s.resolve(d)
	if r.Err == nil {
		changed, r.Err = s.storeText(d, r.Text)
	}
	if r.Err == nil {
		return changed
	}
	s.setAnswer(d, nil)
	d.err = r.Err
	changed = before == nil || before.Error() != d.err.Error()
	if d.known() {
		return changed
	}
	if d.fails++; d.failingSince.IsZero() {
		d.failingSince = now
	}
	due := now
	if !refetch {
		due = now.Add(s.o.Retry.After(d.fails))
	}
	s.schedule(d, due)
	return changed
}

// storeText sets the text of a document and of all others with the same question. It
// reports whether the text of any of them changed. It fails if there is no room.
func (s *Set) storeText(d *document, text string) (changed bool, err error) {
	a := d.answer
	if changed = a == nil || a.text != text; changed {
		s.setAnswer(d, nil)
		if !s.o.Room(s.bytes + int64(len(text))) {
			return false, fmt.Errorf("document of %d bytes does not fit in addition to others of %d: %w; "+
				"raise limits.maxBytes, or select fewer services", len(text), s.bytes, registry.ErrLimit)
		}
		a = &answer{text: text}
	}
	a.fetchedFor = d
	s.resolveWith(d, a)
	if d.question == "" {
		return changed, nil
	}
	s.answers[d.question] = a
	for _, other := range s.groups[d.ref.Group] {
		if other.question == d.question {
			changed = changed || other.answer == nil
			s.resolveWith(other, a)
		}
	}
	return changed, nil
}

// resolveWith makes a document known, by an answer.
func (s *Set) resolveWith(d *document, a *answer) {
	s.unschedule(d)
	s.resolve(d)
	s.setAnswer(d, a)
	d.fetching, d.refetch, d.err, d.fails, d.failingSince = false, false, nil, 0, time.Time{}
}

// setAnswer sets the answer of a document, which may be nil, and counts its bytes.
func (s *Set) setAnswer(d *document, a *answer) {
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

// Resolved reports whether each document is known or had a result since the last Renew.
func (s *Set) Resolved() bool { return s.pending == 0 }

// A queue is a heap of documents by the time at which they are due.
type queue []*document

func (q *queue) Len() int           { return len(*q) }
func (q *queue) Less(i, j int) bool { return (*q)[i].due.Before((*q)[j].due) }

func (q *queue) Swap(i, j int) {
	(*q)[i], (*q)[j] = (*q)[j], (*q)[i]
	(*q)[i].queueIndex, (*q)[j].queueIndex = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	if d, ok := x.(*document); ok {
		d.queueIndex = len(*q)
		*q = append(*q, d)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	d.queueIndex = -1
	return d
}
