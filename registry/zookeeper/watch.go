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

	// watchRetry is the least time between two connections for watches, where the
	// first was refused, as for too many of one address.
	watchRetry = 30 * time.Second
)

// VerifyAfter implements registry.Verified.
func (*Target) VerifyAfter() time.Duration { return verifyAfter }

// Watch implements registry.Watched.
// Without a connection for watches a group is read as well; its next reading tries
// to watch it again.
func (t *Target) Watch(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	lists, err := t.client.watching.begin(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	return t.readBy(ctx, group, lists)
}

// Changed implements registry.Watched.
func (t *Target) Changed() <-chan struct{} { return t.client.watching.ready }

// Changes implements registry.Watched.
func (t *Target) Changes() []registry.Group { return t.client.watching.drain() }

// watching knows which groups are watched: every list that is read of them. A watch
// does not say who made the change that it reports.
//
// The watches are of a connection of their own: what once says of those of a
// source is true of these. It is to the same server as the other, so that what it
// reports can be read over that. With either of the two the watches end, and then
// every group counts as changed.
type watching struct {
	client *Client // whose requests write
	ready  chan struct{}
	turn   chan struct{} // holds a value while a connection is looked for

	mu      sync.Mutex
	watcher *watcher                    // over the connection that was made last; nil: none was
	beside  State                       // of client when that was made
	retry   time.Time                   // when one may be made again, after one failed
	missed  bool                        // groups may be without a watch which Changes does not report
	lost    bool                        // Changes is to report all groups
	groups  map[registry.Group]struct{} // to be watched
	readers map[string][]registry.Group // of a list since its watch fired last, by path
	closed  bool
}

func newWatching(c *Client) *watching {
	return &watching{
		client: c, ready: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		groups: make(map[registry.Group]struct{}), readers: make(map[string][]registry.Group),
	}
}

// close ends the connection for watches. None is made any more.
func (w *watching) close() {
	w.mu.Lock()
	w.closed = true
	last := w.watcher
	w.mu.Unlock()
	if last != nil {
		last.client.Close()
	}
}

// begin begins a reading of a group. What reads its lists has them watched, where
// there is a connection for that.
func (w *watching) begin(ctx context.Context, group registry.Group) (lists, error) {
	watcher, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups[group] = struct{}{}
	w.missed = w.missed || watcher == nil
	if watcher == nil {
		return w.client, nil
	}
	return &watchedLists{w, watcher, group}, nil
}

// watchedLists reads the lists of a group and has them watched.
type watchedLists struct {
	watching *watching
	watcher  *watcher
	group    registry.Group
}

func (l *watchedLists) children(ctx context.Context, path string) ([]string, error) {
	l.watching.reads(l.group, path)
	return readOrAwait(ctx, l.watcher, path, l.watcher.children)
}

func (l *watchedLists) get(ctx context.Context, path string) (node, error) {
	l.watching.reads(l.group, path)
	return readOrAwait(ctx, l.watcher, path, l.watcher.get)
}

// readOrAwait reads a list. Where there is none it has that watched.
func readOrAwait[T any](ctx context.Context, w *watcher, path string, read func(context.Context, string) (T, error)) (T, error) {
	list, err := read(ctx, path)
	if !errors.Is(err, zk.ErrNoNode) {
		return list, err
	}
	there, unknown := w.exists(ctx, path)
	switch {
	case unknown != nil:
		return list, unknown
	case there: // by now
		return read(ctx, path)
	}
	return list, err
}

// reads takes in that a list is about to be read of a group.
func (w *watching) reads(group registry.Group, path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.readers[path], group) {
		w.readers[path] = append(w.readers[path], group)
	}
}

// end takes in that a group is watched no more.
func (w *watching) end(group registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.groups, group)
}

// drain returns the groups that changed since it was called last.
func (w *watching) drain() (groups []registry.Group) {
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
// where there can be none now.
func (w *watching) connect(ctx context.Context) (*watcher, error) {
	ctx, cancel := context.WithTimeout(ctx, w.client.opts.Timeout)
	defer cancel()
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("zookeeper: no connection for watches: %w", ctx.Err())
	}
	if err := w.client.begin(ctx); err != nil {
		return nil, err
	}
	defer w.client.calls.Done()
	state := w.client.State()
	w.mu.Lock()
	last, fits, early := w.watcher, w.beside == state, time.Now().Before(w.retry)
	w.mu.Unlock()
	switch {
	case last != nil && fits && last.client.State().Connected:
		return last, nil
	case early:
		return nil, nil //nolint:nilnil // as said
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
	return nil, nil //nolint:nilnil // as said
}

// connected handles the result of a connection, and reports whether it serves.
func (w *watching) connected(next *watcher, beside State, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.retry = time.Now().Add(watchRetry)
		w.client.opts.Log.Warn("zookeeper does not let us watch what we write; what others delete is put back at the next refresh",
			"server", beside.Server, "retry_in", watchRetry, "err", err)
	}
	if err != nil || w.closed {
		return false
	}
	w.watcher, w.beside = next, beside
	clear(w.readers)
	if w.missed {
		w.lost = true
		next.events.wake()
	}
	w.missed = true
	return true
}

// dial connects to a server.
func (w *watching) dial(ctx context.Context, server string) (*watcher, error) {
	ctx, cancel := context.WithTimeout(ctx, w.client.opts.DialTimeout)
	defer cancel()
	opts := w.client.opts
	opts.Servers, opts.Log, opts.Observe = []string{server + w.client.root}, nil, nil
	opts.Dial = w.client.dialAgain()
	events := newInbox()
	events.ready = w.ready
	next, err := newWatcher(opts, events, func(error) {}) //nolint:contextcheck // its client ends by Close
	if err != nil {
		return nil, err
	}
	if err := next.begin(ctx); err != nil {
		next.client.Close()
		return nil, err
	}
	return next, nil
}
