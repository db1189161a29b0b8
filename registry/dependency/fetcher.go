package dependency

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Lane fetches documents from one place. Each lane has its own limit, so that slow
// providers do not delay the registry.
type Lane struct {
	// Limit is the number of concurrent fetches.
	Limit int

	// Has reports whether the lane fetches a document. The first such lane is used.
	Has func(ref metadata.Ref) bool

	// Fetch returns a document; the error is as in Result. It ends with ctx.
	Fetch func(ctx context.Context, ref metadata.Ref) (string, error)
}

// An Asker gets documents that are not stored from their providers. It is safe for
// concurrent use.
type Asker interface {
	// Ask returns a document; the error is as in Result.
	Ask(ctx context.Context, ref metadata.Ref) (string, error)

	// Question returns the question that is asked for a document. Documents of a
	// group with the same question have the same text, and only one of them is
	// fetched at a time. It is empty for a document that shares its text with none.
	Question(ref metadata.Ref) string
}

// maxAsks is the number of providers that are called concurrently.
const maxAsks = 64

// noAsker is the Asker of a Set without one.
type noAsker struct{}

func (noAsker) Ask(context.Context, metadata.Ref) (string, error) {
	return "", fmt.Errorf("%w: it is not stored, and providers are not called here", registry.ErrRefused)
}

func (noAsker) Question(metadata.Ref) string { return "" }

// A Fetcher fetches the due documents of a Set, for one connection of a source. The
// source's loop calls Start before each wait, waits for Results and Set.Next, and
// passes each result to Accept. Only the loop may use the Set.
type Fetcher struct {
	set     *Set
	lanes   []*lane
	results chan Result
	running sync.WaitGroup
}

type lane struct {
	Lane
	fresh, repeated []task                    // to be fetched, fresh ones first
	free            int                       // number of fetches that may start
	waiting         map[string][]metadata.Ref // the documents that wait for a question that is being asked
}

// A task is a document to be fetched.
type task struct {
	ref  metadata.Ref
	next bool // it waited for its question and is the next to ask it
}

// NewFetcher returns a fetcher for a set, and renews the set. Documents that no lane
// has are fetched by the Asker of the set.
func NewFetcher(set *Set, now time.Time, lanes ...Lane) *Fetcher {
	set.Renew(now)
	f := &Fetcher{set: set}
	lanes = append(lanes, Lane{Limit: maxAsks, Has: func(metadata.Ref) bool { return true }, Fetch: set.o.Asker.Ask})
	limits := 0
	for _, l := range lanes {
		limits += l.Limit
		f.lanes = append(f.lanes, &lane{Lane: l, free: l.Limit, waiting: make(map[string][]metadata.Ref)})
	}
	f.results = make(chan Result, limits) // so that no fetch waits for the loop
	return f
}

// Start starts due fetches up to the limits of their lanes. They end with ctx.
func (f *Fetcher) Start(ctx context.Context, now time.Time) {
	fresh, repeated := f.set.Due(now)
	for _, ref := range fresh {
		l := f.laneOf(ref)
		l.fresh = append(l.fresh, task{ref: ref})
	}
	for _, ref := range repeated {
		l := f.laneOf(ref)
		l.repeated = append(l.repeated, task{ref: ref})
	}
	for _, l := range f.lanes {
		for l.free > 0 {
			t, ok := l.pop()
			if !ok {
				break
			}
			if f.admit(l, t) {
				l.free--
				f.running.Go(func() {
					text, err := l.Fetch(ctx, t.ref)
					f.results <- Result{t.ref, text, err}
				})
			}
		}
	}
}

// admit reports whether a document is to be fetched now. It is not if nothing depends
// on it any more or its question has an answer. If its question is being asked, the
// document waits for the answer.
func (f *Fetcher) admit(l *lane, t task) bool {
	q := f.set.o.Asker.Question(t.ref)
	waiting, asking := l.waiting[q]
	switch d := f.set.document(t.ref); {
	case d == nil || !d.fetching:
		if t.next {
			l.endQuestion(q)
		}
		return false
	case q != "" && asking && !t.next:
		l.waiting[q] = append(waiting, t.ref)
		return false
	case q != "" && !asking:
		l.waiting[q] = nil
	}
	return true
}

// Results returns the channel of the results of fetches.
func (f *Fetcher) Results() <-chan Result { return f.results }

// Accept passes a result to Set.Accept and returns what that returns.
func (f *Fetcher) Accept(now time.Time, r Result) bool {
	l := f.laneOf(r.Ref)
	l.free++
	if q := f.set.o.Asker.Question(r.Ref); q != "" {
		l.endQuestion(q)
	}
	return f.set.Accept(now, r)
}

// Wait waits until all fetches have ended. They end with their context.
func (f *Fetcher) Wait() { f.running.Wait() }

func (f *Fetcher) laneOf(ref metadata.Ref) *lane {
	for _, l := range f.lanes {
		if l.Has(ref) {
			return l
		}
	}
	return f.lanes[len(f.lanes)-1]
}

// endQuestion ends a question. If documents still wait for it, it queues the next of
// them to ask it.
func (l *lane) endQuestion(q string) {
	waiting := l.waiting[q]
	if len(waiting) == 0 {
		delete(l.waiting, q)
		return
	}
	l.repeated = append(l.repeated, task{ref: waiting[0], next: true})
	l.waiting[q] = waiting[1:]
}

func (l *lane) pop() (t task, ok bool) {
	for _, queue := range []*[]task{&l.fresh, &l.repeated} {
		if len(*queue) > 0 {
			t, *queue = (*queue)[0], (*queue)[1:]
			return t, true
		}
	}
	return task{}, false
}
