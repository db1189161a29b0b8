package dependency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A loop uses a fetcher like the loop of a source.
type loop struct {
	*dependency.Fetcher
	set *dependency.Set
	ctx context.Context //nolint:containedctx // of the connection of the loop
}

// connect returns the loop of a new connection. The connection ends with the test or by
// closed.
func connect(t *testing.T, set *dependency.Set, lanes ...dependency.Lane) (l *loop, closed func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l = &loop{dependency.NewFetcher(set, time.Now(), lanes...), set, ctx}
	closed = func() { cancel(); l.Wait() }
	t.Cleanup(closed)
	return l, closed
}

// run runs the loop until a condition is true, for a day at most. It returns the time
// that this took.
func (l *loop) run(until func() bool) time.Duration {
	const day = 24 * time.Hour
	began := time.Now()
	timer := time.NewTimer(day)
	defer timer.Stop()
	for !until() && time.Since(began) < day {
		l.Start(l.ctx, time.Now())
		if next, ok := l.set.Next(); ok {
			timer.Reset(time.Until(next))
		}
		select {
		case r := <-l.Results():
			l.Accept(time.Now(), r)
		case <-timer.C:
		}
	}
	return time.Since(began)
}

// after is true after a duration.
func after(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return !time.Now().Before(end) }
}

func (l *loop) has(app string, n int) func() bool {
	return func() bool { return len(l.set.Documents(group(app))) == n }
}

func (l *loop) want(app string, revisions ...string) {
	var refs []metadata.Ref
	for _, r := range revisions {
		refs = append(refs, ref(app, r))
	}
	l.set.Want(time.Now(), group(app), refs)
}

// providers fetches from providers, of which those with dead in their name do not
// answer.
func providers(ctx context.Context, r metadata.Ref) (string, error) {
	if !strings.Contains(r.Group.Name+r.Key, "dead") {
		return "answer", nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	<-ctx.Done()
	return "", errors.New("no answer")
}

func asked(r metadata.Ref) bool { return strings.HasPrefix(r.Key, "#metadata/ask") }

func stored(r metadata.Ref) bool { return !asked(r) }

func newSet() *dependency.Set {
	return dependency.NewSet(dependency.Options{Retry: registry.Backoff{Min: time.Second, Max: 30 * time.Second}})
}

func TestFetcher_UnresponsiveProviders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := connect(t, newSet(),
			dependency.Lane{Limit: 64, Has: stored, Fetch: providers}, dependency.Lane{Limit: 64, Has: asked, Fetch: providers})
		for i := range 640 {
			l.want(fmt.Sprint("dead", i), "ask")
		}
		if took := l.run(l.set.Resolved); took > 22*time.Second {
			t.Errorf("all of them were tried once after %v", took)
		}
		l.run(after(10 * time.Minute)) // all of them are due, and the lane is full
		l.want("shop", "r1")
		if took := l.run(l.has("shop", 1)); took > 0 {
			t.Errorf("a stored document was read after %v", took)
		}
		l.want("live", "ask")
		if took := l.run(l.has("live", 1)); took > 2*time.Second {
			t.Errorf("a provider that answers was asked after %v", took)
		}
	})
}

// asker is an Asker with one question for each group.
type asker struct {
	ask func(ctx context.Context, r metadata.Ref) (string, error)
}

func (a asker) Ask(ctx context.Context, r metadata.Ref) (string, error) { return a.ask(ctx, r) }

func (asker) Question(r metadata.Ref) string {
	if !asked(r) {
		return ""
	}
	return r.Group.Name
}

func TestFetcher_OneRequestPerQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var under, most, asks atomic.Int32
		l, _ := connect(t, dependency.NewSet(dependency.Options{
			Retry: registry.Backoff{Min: time.Second, Max: 30 * time.Second},
			Asker: asker{func(ctx context.Context, r metadata.Ref) (string, error) {
				if r.Group.Name == "shop" {
					asks.Add(1)
					most.Store(max(most.Load(), under.Add(1)))
					defer under.Add(-1)
				}
				return providers(ctx, r)
			}},
		}), dependency.Lane{Limit: 8, Has: stored, Fetch: providers})
		l.want("shop", "ask-dead1", "ask-dead2", "ask-dead3", "ask-4", "ask-5", "ask-6")
		l.want("other", "ask")
		if took := l.run(l.has("other", 1)); took > 0 {
			t.Errorf("another question was asked after %v", took)
		}
		if took := l.run(l.has("shop", 6)); took > 6*time.Second {
			t.Errorf("answered after %v", took)
		}
		l.run(after(time.Minute))
		before := asks.Load()
		if n := most.Load(); n != 1 || before > 4 {
			t.Errorf("%d at a time, %d in all: the answer is that of all", n, before)
		}
		l.want("shop", "ask-dead1") // who may have the answer of one that goes
		l.Start(l.ctx, time.Now())
		l.want("shop", "ask-8") // while the other is asked
		if l.run(after(time.Minute)); asks.Load() != before+2 {
			t.Errorf("%d more were asked, want 2", asks.Load()-before)
		}
		if !l.has("shop", 1)() {
			t.Error("there is no answer")
		}
	})
}

func TestFetcher_WithoutAsker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := connect(t, newSet(), dependency.Lane{Limit: 1, Has: stored, Fetch: providers})
		l.want("shop", "ask")
		l.run(l.set.Resolved)
		if err := l.set.Why(ref("shop", "ask")); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("%v", err)
		}
	})
}

func TestFetcher_Limits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var under, most atomic.Int32
		l, _ := connect(t, newSet(), dependency.Lane{
			Limit: 5, Has: asked,
			Fetch: func(ctx context.Context, r metadata.Ref) (string, error) {
				most.Store(max(most.Load(), under.Add(1)))
				defer under.Add(-1)
				return providers(ctx, r)
			},
		})
		for i := range 50 {
			l.want(fmt.Sprint("dead", i), "ask")
		}
		l.run(after(10 * time.Minute))
		if n := most.Load(); n != 5 {
			t.Errorf("%d at a time, want 5", n)
		}
	})
}

func TestFetcher_Reconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newSet()
		l, closed := connect(t, set, dependency.Lane{Limit: 1, Has: asked, Fetch: func(ctx context.Context, _ metadata.Ref) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}})
		l.want("shop", "ask-1", "ask-2")
		l.run(after(0))
		l.Start(l.ctx, time.Now())
		closed()
		l, _ = connect(t, set, dependency.Lane{Limit: 1, Has: asked, Fetch: providers})
		if took := l.run(l.has("shop", 2)); took > 0 {
			t.Errorf("after %v", took)
		}
	})
}
