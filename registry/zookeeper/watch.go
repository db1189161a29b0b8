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

const (
	// verifyAfter is how long after a write a parent is read back, and watched from
	// then on: a write of our own ends the watch. It is long enough for the writes of
	// a burst to be read back together.
	verifyAfter = 500 * time.Millisecond

	// watchRetry is the least time between two connections for watches if the first
	// was refused, as for too many from one address.
	watchRetry = 30 * time.Second
)

// VerifyAfter implements registry.Verified.
func (*Target) VerifyAfter() time.Duration { return verifyAfter }

// Watch implements registry.Watched. Without a connection for watches it reads a group
// without watching it, and the next reading tries again.
func (t *Target) Watch(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	from, err := t.client.watches.add(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	return t.readFrom(ctx, group, from)
}

// Changed implements registry.Watched.
func (t *Target) Changed() <-chan struct{} { return t.client.watches.ready }

// Changes implements registry.Watched.
func (t *Target) Changes() []registry.Group { return t.client.watches.drain() }

// groupWatches watches the lists that are read of groups. A watch does not say who
// made the change that it reports.
//
// The watches have a connection of their own, because a watch ends with its
// connection, see singleConnection. It is to the server of the client, so that the client can
// read what a watch reports. If either connection ends, every group counts as changed.
type groupWatches struct {
	client     *Client // that writes
	ready      chan struct{}
	connecting chan struct{} // holds a value while a goroutine connects

	mu      sync.Mutex
	watcher *watcher                    // over the last connection; nil: none was made
	writer  State                       // of client when that was made
	retry   time.Time                   // when a connection may be made again, after one failed
	missed  bool                        // groups may be without a watch which Changes does not report
	lost    bool                        // Changes has to report all groups
	groups  map[registry.Group]struct{} // watched
	readers map[string][]registry.Group // of a list since its watch fired last, by path
	closed  bool
}

func newGroupWatches(c *Client) *groupWatches {
	return &groupWatches{
		client: c, ready: make(chan struct{}, 1), connecting: make(chan struct{}, 1),
		groups: make(map[registry.Group]struct{}), readers: make(map[string][]registry.Group),
	}
}

// close closes the connection for watches. No other follows.
func (w *groupWatches) close() {
	w.mu.Lock()
	w.closed = true
	last := w.watcher
	w.mu.Unlock()
	if last != nil {
		last.client.Close()
	}
}

// add returns a reader of a group that watches the lists it reads, if there is a
// connection for that.
func (w *groupWatches) add(ctx context.Context, group registry.Group) (nodeReader, error) {
	watcher, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups[group] = struct{}{}
	if watcher == nil {
		w.missed = true
		return w.client, nil
	}
	return &watchedReader{w, watcher, group}, nil
}

// remove ends the watch of a group.
func (w *groupWatches) remove(group registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.groups, group)
}

// watchedReader reads the lists of a group and watches them.
type watchedReader struct {
	watches *groupWatches
	watcher *watcher
	group   registry.Group
}

func (r *watchedReader) children(ctx context.Context, path string) ([]string, error) {
	r.watches.addReader(r.group, path)
	return readOrAwait(ctx, r.watcher, path, r.watcher.children)
}

func (r *watchedReader) get(ctx context.Context, path string) (node, error) {
	r.watches.addReader(r.group, path)
	return readOrAwait(ctx, r.watcher, path, r.watcher.get)
}

// readOrAwait reads a node. If there is none it watches for its creation.
func readOrAwait[T any](ctx context.Context, w *watcher, path string, read func(context.Context, string) (T, error)) (T, error) {
	content, err := read(ctx, path)
	if !errors.Is(err, zk.ErrNoNode) {
		return content, err
	}
	exists, watchErr := w.exists(ctx, path)
	switch {
	case watchErr != nil:
		return content, watchErr
	case exists: // by now
		return read(ctx, path)
	}
	return content, err
}

// addReader records that a list of a group is about to be read.
func (w *groupWatches) addReader(group registry.Group, path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.readers[path], group) {
		w.readers[path] = append(w.readers[path], group)
	}
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

// connect returns a watcher to the server that the client is connected to; nil
// if there can be none now.
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

// connected handles the result of a connection, and reports whether it is used.
func (w *groupWatches) connected(next *watcher, writer State, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.retry = time.Now().Add(watchRetry)
		w.client.opts.Log.Warn("zookeeper does not let us watch what we write; what others delete is put back at the next refresh",
			"server", writer.Server, "retry_in", watchRetry, "err", err)
	}
	if err != nil || w.closed {
		return false
	}
	w.watcher, w.writer = next, writer
	clear(w.readers)
	if w.missed {
		w.lost = true
		wake(w.ready)
	}
	w.missed = true
	return true
}

// dial connects to a server.
func (w *groupWatches) dial(ctx context.Context, server string) (*watcher, error) {
	ctx, cancel := context.WithTimeout(ctx, w.client.opts.DialTimeout)
	defer cancel()
	opts := w.client.opts
	opts.Servers, opts.Log, opts.Observe = []string{server + w.client.root}, nil, nil
	opts.Dial = w.client.dialSame()
	next, err := newWatcher(opts, newWatchEvents(w.ready), func(error) {}) //nolint:contextcheck // its client ends by Close
	if err != nil {
		return nil, err
	}
	if err := next.begin(ctx); err != nil {
		next.client.Close()
		return nil, err
	}
	return next, nil
}
