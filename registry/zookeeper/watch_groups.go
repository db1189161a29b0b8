package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// verifyAfter is the time after a write when a parent is read back and watched again: our
// own write ended its watch. The writes of a burst are read back together.
const verifyAfter = 500 * time.Millisecond

// Watch implements registry.Watcher. Without a connection for watches it reads a group
// without watching it; as soon as there is one, Changes returns every group.
func (t *Target) Watch(ctx context.Context, group registry.Group) ([]registry.Stored, error) {
	by, err := t.client.watches.add(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	return t.readBy(ctx, group, by)
}

// Changed implements registry.Watcher.
func (t *Target) Changed() <-chan struct{} { return t.client.watches.ready }

// Changes implements registry.Watcher.
func (t *Target) Changes() []registry.Group { return t.client.watches.drain() }

// Unwatched returns why Changes may miss changes by others to watched groups now; nil: it
// misses none.
func (c *Client) Unwatched() error { return c.watches.unwatched() }

// The bounds of the wait after a failed connection for watches. A server that starts resets
// the first connections. A server with too many connections from our address refuses each.
const minWatchRetry, maxWatchRetry = time.Second, 30 * time.Second

// groupWatches watches the lists of groups when they are read. A watch does not say who
// made the reported change.
//
// The watches have their own connection, because a watch ends with its connection, see
// singleConnection. The connection is to the server of the client, so that the client can
// read a reported change. If either connection ends, every group counts as changed. A
// goroutine makes the next connection, because there may be no other cause to connect
// until others change something.
type groupWatches struct {
	client     *Client // it writes
	ready      chan struct{}
	ended      chan struct{} // ready after a connection for watches ended or failed
	connecting chan struct{} // holds a value while a goroutine connects
	running    sync.WaitGroup

	mu      sync.Mutex
	groups  map[registry.Group]struct{} // the watched ones
	readers map[string][]registry.Group // of a list since its watch last fired, by path
	missed  bool                        // groups may have no watch, and Changes has not reported them
	lost    bool                        // Changes has to report all groups
	watcher *watcher                    // over the last connection; nil: none was made
	writer  State                       // of client when that connection was made
	fails   int                         // failed connections in a row
	err     error                       // of the last one
	retry   time.Time                   // of the next connection, after one failed
	stop    context.CancelFunc          // ends keepConnected; nil: it was not started
	closed  bool
}

func newGroupWatches(c *Client) *groupWatches {
	return &groupWatches{
		client: c, ready: make(chan struct{}, 1), ended: make(chan struct{}, 1), connecting: make(chan struct{}, 1),
		groups: make(map[registry.Group]struct{}), readers: make(map[string][]registry.Group),
	}
}

// close closes the connection for watches, and makes no other.
func (w *groupWatches) close() {
	w.mu.Lock()
	w.closed = true
	last := w.watcher
	if w.stop != nil {
		w.stop()
	}
	w.mu.Unlock()
	if last != nil {
		last.client.Close()
	}
	w.running.Wait()
}

// add adds a group to the watched ones. It returns a function that reads lists of the group
// and watches them if there is a connection for watches.
func (w *groupWatches) add(ctx context.Context, group registry.Group) (queryFunc, error) {
	w.start(ctx)
	watcher, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups[group] = struct{}{}
	if watcher == nil {
		w.missed = true
		return w.client.query, nil
	}
	return func(ctx context.Context, q query) (node, error) {
		w.addReader(group, q.path)
		return watcher.await(ctx, q, watcher.query)
	}, nil
}

func (w *groupWatches) remove(group registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.groups, group)
}

func (w *groupWatches) addReader(group registry.Group, path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.readers[path], group) {
		w.readers[path] = append(w.readers[path], group)
	}
}

var errNotWatching = errors.New("the connection for watches was lost, reconnecting")

// unwatched implements Client.Unwatched.
func (w *groupWatches) unwatched() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.groups) == 0:
		return nil
	case w.err != nil:
		return w.err
	case w.lost, w.watcher == nil, !w.watcher.client.State().Connected:
		return errNotWatching
	}
	return nil
}

// drain returns the groups that changed since the last call.
func (w *groupWatches) drain() (groups []registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var paths []string
	if w.watcher != nil {
		var broken bool
		if paths, broken = w.watcher.events.drain(); broken {
			w.watcher.events.reset()
			w.lost, w.missed = true, false
		}
	}
	if w.lost {
		w.lost = false
		return slices.SortedFunc(maps.Keys(w.groups), registry.Group.Compare)
	}
	for _, path := range paths {
		for _, group := range w.readers[path] {
			if _, watched := w.groups[group]; watched {
				groups = append(groups, group)
			}
		}
		delete(w.readers, path)
	}
	slices.SortFunc(groups, registry.Group.Compare)
	return slices.Compact(groups)
}

// start starts keepConnected at the first call.
func (w *groupWatches) start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil || w.closed {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	w.running.Go(func() { w.keepConnected(ctx) })
}

// keepConnected connects again after each connection that ended or failed.
func (w *groupWatches) keepConnected(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.ended:
		}
		w.mu.Lock()
		wait := time.Until(w.retry)
		w.mu.Unlock()
		registry.Sleep(ctx, wait)
		if _, err := w.connect(ctx); err != nil { // connect waited for the client in vain
			wake(w.ended)
		}
	}
}

// connect returns a watcher over a connection to the server of the client; nil if there
// can be none now.
func (w *groupWatches) connect(ctx context.Context) (*watcher, error) {
	ctx, cancel := context.WithTimeout(ctx, w.client.opts.Timeout)
	defer cancel()
	select {
	case w.connecting <- struct{}{}:
		defer func() { <-w.connecting }()
	case <-ctx.Done():
		return nil, fmt.Errorf("zookeeper: no connection for watches: %w", ctx.Err())
	}
	if err := w.client.begin(ctx); err != nil {
		return nil, err
	}
	defer w.client.calls.Done()
	state := w.client.State()
	w.mu.Lock()
	last, current, early := w.watcher, w.writer == state, time.Now().Before(w.retry)
	w.mu.Unlock()
	switch {
	case last != nil && current && last.client.State().Connected:
		return last, nil
	case early:
		return nil, nil //nolint:nilnil // as documented
	case last != nil:
		last.client.Close()
	}
	next, err := w.dial(ctx, state.Server)
	if w.connected(next, state, err) {
		return next, nil
	}
	if next != nil {
		next.client.Close()
	}
	return nil, nil //nolint:nilnil // as documented
}

// connected handles the result of a dial, and reports whether the connection is used.
func (w *groupWatches) connected(next *watcher, writer State, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failed(writer, err)
	}
	if err != nil || w.closed {
		return false
	}
	if w.fails > 0 {
		w.client.opts.Log.Info("zookeeper watch connection established again", "server", writer.Server)
	}
	w.watcher, w.writer, w.fails, w.err, w.retry = next, writer, 0, nil, time.Time{}
	clear(w.readers)
	if w.missed {
		w.lost = true
		wake(w.ready)
	}
	w.missed = true
	return true
}

// failed schedules the next connection after one failed. The caller holds mu.
func (w *groupWatches) failed(writer State, err error) {
	if w.closed {
		return
	}
	w.fails++
	wait := registry.Backoff{Min: minWatchRetry, Max: maxWatchRetry}.Spread(w.fails)
	w.err, w.retry = err, time.Now().Add(wait)
	log := w.client.opts.Log.Debug
	if w.fails == 1 {
		log = w.client.opts.Log.Warn
	}
	log("zookeeper watch connection failed, retrying; changes by others are found once it is established",
		"server", writer.Server, "retry_in", wait, "err", err)
	wake(w.ended)
}

// dial connects a watcher to the server of the client.
func (w *groupWatches) dial(ctx context.Context, server string) (*watcher, error) {
	ctx, cancel := context.WithTimeout(ctx, w.client.opts.DialTimeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	opts := w.client.opts
	opts.Servers, opts.Log, opts.Observe = []string{server + w.client.root}, nil, nil
	opts.Dial = w.client.dialSame()
	lost := func(err error) {
		end(err)
		wake(w.ended)
	}
	next, err := newWatcher(opts, newWatchEvents(w.ready), lost) //nolint:contextcheck // its client ends by Close
	if err != nil {
		end(nil)
		return nil, err
	}
	if err := next.begin(ctx); err != nil {
		end(nil)
		next.client.Close()
		return nil, err
	}
	return next, nil
}
