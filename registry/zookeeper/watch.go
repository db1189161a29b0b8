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

// A watcher reads and watches nodes over one connection.
type watcher struct {
	client *Client
	events *watchEvents
}

// newWatcher returns a watcher that connects in the background. It calls end when its
// connection has ended.
func newWatcher(opts Options, events *watchEvents, end context.CancelCauseFunc) (*watcher, error) {
	client, err := dial(opts, &singleConnection{end: end, events: events})
	if err != nil {
		return nil, err
	}
	return &watcher{client, events}, nil
}

// watchesSet is the longest time in which the library arms the watches of an earlier
// connection again. There are none, but a watch that is armed meanwhile would be one of
// them, and race with its own answer.
const watchesSet = time.Millisecond

// begin waits for the connection, and makes its server catch up with the leader. Otherwise
// a server that lags would show an old state as complete.
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

// await makes a query by a function. If the node does not exist, await watches for its
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

// A watch reports the next change of a node, once: either of the names of its children, or
// of its data or existence. In both cases it reports the deletion of the node.
type watch struct {
	path     string
	children bool
}

// watchEvents collects the changes that the callback of the library reports, which must
// not block. It knows the armed watches and arms none of them again, because the library
// keeps a channel for each request that arms one.
type watchEvents struct {
	ready chan struct{}

	mu     sync.Mutex
	paths  map[string]struct{}
	armed  map[watch]struct{}
	broken bool // the connection was lost since the last reset
}

// newWatchEvents returns a collection that signals ready after a change.
func newWatchEvents(ready chan struct{}) *watchEvents {
	return &watchEvents{ready: ready, paths: make(map[string]struct{}), armed: make(map[watch]struct{})}
}

// arm reports whether to arm a watch, and marks it as armed. It is called before the
// request, because the event may come before the answer.
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

// drain returns and removes the changed paths. Broken reports that the connection was lost.
func (e *watchEvents) drain() (paths []string, broken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	paths = slices.Sorted(maps.Keys(e.paths))
	clear(e.paths)
	return paths, e.broken
}

// reset removes all changes, because everything is about to be read. Armed watches stay
// armed.
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
