package dependency

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Lane fetches documents from one place. It limits its fetches on its own, so that
// slow providers delay no registry.
type Lane struct {
	Limit int                                                         // of concurrent fetches
	Has   func(ref metadata.Ref) bool                                 // the first lane that has a document fetches it
	Fetch func(ctx context.Context, ref metadata.Ref) (string, error) // as in Result; it ends with ctx
}

// An Asker asks providers for documents that are not stored. It is safe for use by many
// goroutines.
type Asker interface {
	// Ask returns a document; the error is as in Result.
	Ask(ctx context.Context, ref metadata.Ref) (string, error)

	// Same returns the question of a document. Documents of a group with the same
	// question have the same text, and only one of them is asked for at a time.
	// Empty: the text is its own.
	Same(ref metadata.Ref) string
}

// asks is the number of providers that are asked at a time.
const asks = 64

// nobody is the Asker if there is none.
type nobody struct{}

func (nobody) Ask(context.Context, metadata.Ref) (string, error) {
	return "", fmt.Errorf("%w: it is not stored, and no provider is asked here", registry.ErrRefused)
}

func (nobody) Same(metadata.Ref) string { return "" }

// A Fetcher fetches the due documents of a Set, for one connection of a source. The
// source's loop calls Start before each wait, waits for Results and Set.Next, and
// passes each result to Accept. Only the loop uses the Set.
type Fetcher struct {
	set     *Set
	lanes   []*lane
	results chan Result
	running sync.WaitGroup
}

type lane struct {
	Lane
	fresh, again []task                    // to be fetched, fresh first
	free         int                       // fetches that may start
	waiting      map[string][]metadata.Ref // by question that is being asked
}

// A task is a document to be fetched.
type task struct {
	ref  metadata.Ref
	turn bool // it waited for its question, and is next
}

// NewFetcher returns a fetcher for a set, and renews the set. Providers are asked for
// documents that no lane has.
func NewFetcher(set *Set, now time.Time, lanes ...Lane) *Fetcher {
	set.Renew(now)
	f := &Fetcher{set: set}
	lanes = append(lanes, Lane{Limit: asks, Has: func(metadata.Ref) bool { return true }, Fetch: set.o.Asker.Ask})
	room := 0
	for _, l := range lanes {
		room += l.Limit
		f.lanes = append(f.lanes, &lane{Lane: l, free: l.Limit, waiting: make(map[string][]metadata.Ref)})
	}
	f.results = make(chan Result, room) // so that no fetch waits for the loop
	return f
}

// Start starts due fetches up to the limits of their lanes. They end with ctx.
func (f *Fetcher) Start(ctx context.Context, now time.Time) {
	fresh, again := f.set.Due(now)
	for _, ref := range fresh {
		l := f.lane(ref)
		l.fresh = append(l.fresh, task{ref: ref})
	}
	for _, ref := range again {
		l := f.lane(ref)
		l.again = append(l.again, task{ref: ref})
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

// admit reports whether a document is to be fetched now: not if nothing depends on it
// any more, if its question has an answer, or if its question is being asked.
func (f *Fetcher) admit(l *lane, t task) bool {
	q := f.set.o.Asker.Same(t.ref)
	waiting, asking := l.waiting[q]
	switch d := f.set.document(t.ref); {
	case d == nil || !d.fetching:
		if t.turn {
			l.next(q)
		}
		return false
	case q != "" && asking && !t.turn:
		l.waiting[q] = append(waiting, t.ref)
		return false
	case q != "" && !asking:
		l.waiting[q] = nil
	}
	return true
}

// Results yields the results of fetches.
func (f *Fetcher) Results() <-chan Result { return f.results }

// Accept passes a result to Set.Accept.
func (f *Fetcher) Accept(now time.Time, r Result) bool {
	l := f.lane(r.Ref)
	l.free++
	if q := f.set.o.Asker.Same(r.Ref); q != "" {
		l.next(q)
	}
	return f.set.Accept(now, r)
}

// Wait waits until all fetches have ended with their context.
func (f *Fetcher) Wait() { f.running.Wait() }

func (f *Fetcher) lane(ref metadata.Ref) *lane {
	for _, l := range f.lanes {
		if l.Has(ref) {
			return l
		}
	}
	return f.lanes[len(f.lanes)-1]
}

// next ends a question, or lets the next document that waits ask it.
func (l *lane) next(q string) {
	waiting := l.waiting[q]
	if len(waiting) == 0 {
		delete(l.waiting, q)
		return
	}
	l.again = append(l.again, task{ref: waiting[0], turn: true})
	l.waiting[q] = waiting[1:]
}

func (l *lane) pop() (t task, ok bool) {
	for _, queue := range []*[]task{&l.fresh, &l.again} {
		if len(*queue) > 0 {
			t, *queue = (*queue)[0], (*queue)[1:]
			return t, true
		}
	}
	return task{}, false
}
