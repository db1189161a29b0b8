package zookeeper

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

const (
	// verifyAfter is how long after a write a folder is read back, and watched from
	// then on: a write of our own ends the watch. It is long enough for the writes of
	// a burst to be read back together.
	verifyAfter = 500 * time.Millisecond

	// watchRetry is the least time between two connections for watches, where the
	// first was refused, as for too many of one address.
	watchRetry = 30 * time.Second
)

// VerifyAfter implements registry.Verified. A guest reads nothing back.
func (t *Target) VerifyAfter() time.Duration {
	if t.opts.Guest {
		return 0
	}
	return verifyAfter
}

// Watch implements registry.Watched, but for a guest, whose groups are read alone.
// Without a connection for watches a group is read as well; its next reading tries
// to watch it again.
func (t *Target) Watch(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	if t.opts.Guest {
		return t.Read(ctx, group)
	}
	return t.readBy(ctx, group, func(ctx context.Context, folder string) ([]string, error) {
		return t.client.watching.list(ctx, folder, group)
	})
}

// Changed implements registry.Watched.
func (t *Target) Changed() <-chan struct{} { return t.client.watching.ready }

// Changes implements registry.Watched.
func (t *Target) Changes() []registry.Group { return t.client.watching.take() }

// watching knows which folders are watched for what others do. Of one that was
// written since it was read nothing is told: our own writes end its watch.
//
// The watches are of a connection of their own: what once says of those of a
// source is true of these. It is to the same server as the other, so that what it
// tells of can be read over that. With either of the two the watches end, and then
// every group counts as changed.
type watching struct {
	client *Client // whose requests write
	ready  chan struct{}
	turn   chan struct{} // holds a value while a connection is looked for

	mu      sync.Mutex
	watcher *watcher                  // over the connection that was made last; nil: none was
	beside  State                     // of client when that was made
	retry   time.Time                 // when one may be made again, after one failed
	missed  bool                      // groups may be without a watch of which Changes does not tell
	lost    bool                      // Changes is to tell of all groups
	groups  map[string]registry.Group // by folder, of those to be watched
	written map[string]struct{}       // folders
	closed  bool
}

func newWatching(c *Client) *watching {
	return &watching{
		client: c, ready: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		groups: make(map[string]registry.Group), written: make(map[string]struct{}),
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

// list lists a folder and has it watched, where there is a connection for that.
func (w *watching) list(ctx context.Context, folder string, group registry.Group) ([]string, error) {
	watcher, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.groups[folder] = group
	delete(w.written, folder)
	w.missed = w.missed || watcher == nil
	w.mu.Unlock()
	if watcher == nil {
		return w.client.children(ctx, folder)
	}
	return watcher.children(ctx, folder)
}

// end takes in that a folder is watched no more.
func (w *watching) end(folder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.groups, folder)
	delete(w.written, folder)
}

// wrote takes in that a folder is about to be written.
func (w *watching) wrote(folder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, watched := w.groups[folder]; watched {
		w.written[folder] = struct{}{}
	}
}

// take returns the groups that others changed since it was called last.
func (w *watching) take() (groups []registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var paths []string
	if w.watcher != nil {
		var broken bool
		if paths, broken = w.watcher.events.take(); broken {
			w.watcher.events.reset()
			w.lost, w.missed = true, false
		}
	}
	if w.lost {
		w.lost = false
		return slices.SortedFunc(maps.Values(w.groups), registry.Group.Compare)
	}
	for _, path := range paths {
		group, watched := w.groups[path]
		if _, ours := w.written[path]; watched && !ours {
			groups = append(groups, group)
		}
	}
	return groups
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
	if w.took(next, state, err) {
		return next, nil
	}
	if next != nil {
		next.client.Close()
	}
	return nil, nil //nolint:nilnil // as said
}

// took takes in what came of a connection, and reports whether it serves.
func (w *watching) took(next *watcher, beside State, err error) bool {
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
