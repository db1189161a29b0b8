package zookeeper

import (
	"context"
	"fmt"
	"time"
)

// A watcher reads and watches nodes over a client for a single connection.
type watcher struct {
	client *Client
	events *inbox
}

// newWatcher returns a watcher that connects in the background. Once its connection
// has ended, end is called.
func newWatcher(opts Options, events *inbox, end context.CancelCauseFunc) (*watcher, error) {
	client, err := dial(opts, &once{end: end, events: events})
	if err != nil {
		return nil, err
	}
	return &watcher{client, events}, nil
}

// begin waits for the connection, and makes its server catch up with its leader:
// one that lags would show an old state as if it were whole.
func (w *watcher) begin(ctx context.Context) error {
	_, err := call(ctx, w.client, func(conn conn) (string, error) {
		return conn.Sync("/")
	})
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	sleep(ctx, watchesSet)
	return nil
}

// watchesSet is how long the library takes, at most, to set the watches of an
// earlier connection again. There was none, but one that is armed meanwhile is
// taken for such, and read beside the answers that change it.
const watchesSet = time.Millisecond

// children lists a node and has it watched.
func (w *watcher) children(ctx context.Context, p string) ([]string, error) {
	armed := watch{p, ofChildren}
	if !w.events.arm(armed) {
		return w.client.children(ctx, p)
	}
	names, err := call(ctx, w.client, func(conn conn) ([]string, error) {
		names, _, _, err := conn.ChildrenW(p)
		return names, err
	})
	if err != nil {
		w.events.disarm(armed)
	}
	return names, err
}

// get reads a node and has it watched.
func (w *watcher) get(ctx context.Context, p string) (node, error) {
	armed := watch{p, ofData}
	if !w.events.arm(armed) {
		return w.client.get(ctx, p)
	}
	n, err := call(ctx, w.client, func(conn conn) (node, error) {
		data, stat, _, err := conn.GetW(p)
		return node{data, stat}, err
	})
	if err != nil {
		w.events.disarm(armed)
	}
	return n, err
}

// exists reports whether a node is there, and has it watched: its creation where
// it is not.
func (w *watcher) exists(ctx context.Context, p string) (bool, error) {
	armed := watch{p, ofData}
	if !w.events.arm(armed) {
		stat, err := w.client.exists(ctx, p)
		return stat != nil, err
	}
	there, err := call(ctx, w.client, func(conn conn) (bool, error) {
		there, _, _, err := conn.ExistsW(p)
		return there, err
	})
	if err != nil {
		w.events.disarm(armed)
	}
	return there, err
}
