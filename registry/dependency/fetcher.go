package dependency

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Lane is one way to fetch documents. Each lane has its own fetches under way,
// so that providers that do not answer delay no registry that does.
type Lane struct {
	Limit int                                                         // fetches under way at a time
	Has   func(ref metadata.Ref) bool                                 // the first lane that has a document fetches it
	Fetch func(ctx context.Context, ref metadata.Ref) (string, error) // as of Result; it ends with ctx
}

// An Asker asks providers for documents that they alone know. It is safe for
// use by many goroutines.
type Asker interface {
	// Ask returns a document; its error is as that of a Result.
	Ask(ctx context.Context, ref metadata.Ref) (string, error)

	// Same names the question that a document answers. Documents of one name,
	// which are of one group, have one text, and are asked for one after
	// another. Empty: its text is its own.
	Same(ref metadata.Ref) string
}

// asks is how many providers are asked at a time.
const asks = 64

// nobody is asked where there is no Asker.
type nobody struct{}

func (nobody) Ask(context.Context, metadata.Ref) (string, error) {
	return "", fmt.Errorf("%w: it is not stored, and no provider is asked here", registry.ErrRefused)
}

func (nobody) Same(metadata.Ref) string { return "" }

// A Fetcher fetches what a Set is due, beside the loop of a source and for one
// connection. The loop calls Start before each wait, waits for Results and for
// Next, and hands each result to Take; nothing of the Set is touched elsewhere.
type Fetcher struct {
	set     *Set
	lanes   []*lane
	results chan Result
	running sync.WaitGroup
}

type lane struct {
	Lane
	fresh, again []task // to be fetched; what was never fetched goes first
	free         int
	asked        map[string][]metadata.Ref // by question that is under way: those that wait for its end
}

// A task is a document to be fetched.
type task struct {
	ref  metadata.Ref
	turn bool // it waited for the end of its question, and is next
}

// NewFetcher returns a fetcher for a set, whose documents are all due anew. What
// no lane has is asked for.
func NewFetcher(set *Set, now time.Time, lanes ...Lane) *Fetcher {
	set.Renew(now)
	f := &Fetcher{set: set}
	lanes = append(lanes, Lane{Limit: asks, Has: func(metadata.Ref) bool { return true }, Fetch: set.o.Asker.Ask})
	room := 0
	for _, l := range lanes {
		room += l.Limit
		f.lanes = append(f.lanes, &lane{Lane: l, free: l.Limit, asked: make(map[string][]metadata.Ref)})
	}
	f.results = make(chan Result, room) // so that no fetch waits for the loop
	return f
}

// Start starts the fetches that are due, as far as their lanes have room. They
// end with ctx.
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
			t, ok := l.next()
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

// admit reports whether a document is to be fetched now: not one that nothing
// depends on any more or that another gave, and none whose question is under way.
func (f *Fetcher) admit(l *lane, t task) bool {
	q := f.set.o.Asker.Same(t.ref)
	waiting, under := l.asked[q]
	switch d := f.set.of(t.ref); {
	case d == nil || !d.asked:
		if t.turn {
			l.pass(q)
		}
		return false
	case q != "" && under && !t.turn:
		l.asked[q] = append(waiting, t.ref)
		return false
	case q != "" && !under:
		l.asked[q] = nil
	}
	return true
}

// Results yields what was fetched.
func (f *Fetcher) Results() <-chan Result { return f.results }

// Accept takes a result in and reports what Set.Take does.
func (f *Fetcher) Accept(now time.Time, r Result) bool {
	l := f.lane(r.Ref)
	l.free++
	if q := f.set.o.Asker.Same(r.Ref); q != "" {
		l.pass(q)
	}
	return f.set.Accept(now, r)
}

// Wait returns when all fetches have ended, which their context has to make
// them do.
func (f *Fetcher) Wait() { f.running.Wait() }

// lane returns the lane of a document: the last where none has it.
func (f *Fetcher) lane(ref metadata.Ref) *lane {
	for _, l := range f.lanes {
		if l.Has(ref) {
			return l
		}
	}
	return f.lanes[len(f.lanes)-1]
}

// pass ends a question, or asks it of the next that waits for it: after all that
// was never asked.
func (l *lane) pass(q string) {
	waiting := l.asked[q]
	if len(waiting) == 0 {
		delete(l.asked, q)
		return
	}
	l.again = append(l.again, task{ref: waiting[0], turn: true})
	l.asked[q] = waiting[1:]
}

func (l *lane) next() (t task, ok bool) {
	for _, queue := range []*[]task{&l.fresh, &l.again} {
		if len(*queue) > 0 {
			t, *queue = (*queue)[0], (*queue)[1:]
			return t, true
		}
	}
	return task{}, false
}
