package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A watcher reads and watches nodes over a client for a single connection.
type watcher struct {
	client *Client
	events *watchEvents
}

// newWatcher returns a watcher that connects in the background. Once its connection
// has ended, it calls end.
func newWatcher(opts Options, events *watchEvents, end context.CancelCauseFunc) (*watcher, error) {
	client, err := dial(opts, &singleConnection{end: end, events: events})
	if err != nil {
		return nil, err
	}
	return &watcher{client, events}, nil
}

// watchesSet is the longest time in which the library sets the watches of an earlier
// connection again. There are none, but it would find one that is armed meanwhile,
// and race with the answer to it.
const watchesSet = time.Millisecond

// begin waits for the connection, and makes its server catch up with its leader:
// one that lags would show an old state as if it were whole.
func (w *watcher) begin(ctx context.Context) error {
	if _, err := call(ctx, w.client.session, func(conn conn) (string, error) { return conn.Sync("/") }); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	registry.Sleep(ctx, watchesSet)
	return nil
}

// query makes a query, and watches for the next change of the answer.
func (w *watcher) query(ctx context.Context, q query) (node, error) {
	watched := watch{q.path, q.kind == ofChildren}
	q.watch = w.events.arm(watched)
	ask := w.client.query
	if q.watch && w.client.single == nil {
		ask = w.client.queryArmed
	}
	n, err := ask(ctx, q)
	if q.watch && err != nil {
		w.events.disarm(watched)
	}
	return n, err
}

// await makes a query by a function. If the node does not exist it watches for its
// creation.
func (w *watcher) await(ctx context.Context, q query, by queryFunc) (node, error) {
	n, err := by(ctx, q)
	if !errors.Is(err, zk.ErrNoNode) {
		return n, err
	}
	now, watchErr := w.query(ctx, query{path: q.path})
	switch {
	case watchErr != nil:
		return n, watchErr
	case now.stat != nil:
		return by(ctx, q)
	}
	return n, err
}

// A watch reports the next change of a node, once: of the names of its children, or of
// its data, where its creation is one too. It reports the end of the node in any case.
type watch struct {
	path     string
	children bool
}

// watchEvents gathers the changes that the library's callback reports, which must
// not block. It knows which watches are armed: the library keeps a channel
// for each request that arms one, so an armed one is not armed again.
type watchEvents struct {
	ready chan struct{}

	mu     sync.Mutex
	paths  map[string]struct{}
	armed  map[watch]struct{}
	broken bool // the connection was lost since the last reset
}

// newWatchEvents returns an empty set that signals ready.
func newWatchEvents(ready chan struct{}) *watchEvents {
	return &watchEvents{ready: ready, paths: make(map[string]struct{}), armed: make(map[watch]struct{})}
}

// arm reports whether a watch is to be armed, and records it as armed, before
// the request: its event may come before the answer is seen.
func (e *watchEvents) arm(w watch) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.armed[w]; ok {
		return false
	}
	e.armed[w] = struct{}{}
	return true
}

func (e *watchEvents) disarm(w watch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.armed, w)
}

func (e *watchEvents) armedCount() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.armed)
}

func (e *watchEvents) changed(event zk.Event) {
	e.mu.Lock()
	e.paths[event.Path] = struct{}{}
	if event.Type != zk.EventNodeChildrenChanged {
		delete(e.armed, watch{event.Path, false})
	}
	if event.Type == zk.EventNodeChildrenChanged || event.Type == zk.EventNodeDeleted {
		delete(e.armed, watch{event.Path, true})
	}
	e.mu.Unlock()
	wake(e.ready)
}

func (e *watchEvents) disconnected() {
	e.mu.Lock()
	e.broken = true
	e.mu.Unlock()
	wake(e.ready)
}

// drain returns the changed paths and whether the connection was lost, and
// removes the paths.
func (e *watchEvents) drain() (paths []string, broken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	paths = slices.Sorted(maps.Keys(e.paths))
	clear(e.paths)
	return paths, e.broken
}

// reset removes all changes, because everything is about to be read. What is armed
// stays armed.
func (e *watchEvents) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.paths)
	e.broken = false
}

// wake signals a channel of capacity 1, which coalesces signals.
func wake(ready chan<- struct{}) {
	select {
	case ready <- struct{}{}:
	default:
	}
}
