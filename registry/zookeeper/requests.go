package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// The requests that the package makes.

func (c *Client) children(ctx context.Context, path string) ([]string, error) {
	return call(ctx, c, func(conn conn) ([]string, error) {
		names, _, err := conn.Children(path)
		return names, err
	})
}

// exists returns the stat of a node, nil where there is none.
func (c *Client) exists(ctx context.Context, path string) (*zk.Stat, error) {
	return call(ctx, c, func(conn conn) (*zk.Stat, error) {
		ok, stat, err := conn.Exists(path)
		if err != nil || !ok {
			return nil, err
		}
		return stat, nil
	})
}

// node is the content of a node.
type node struct {
	data []byte
	stat *zk.Stat
}

func (c *Client) get(ctx context.Context, path string) (node, error) {
	return call(ctx, c, func(conn conn) (node, error) {
		data, stat, err := conn.Get(path)
		return node{data, stat}, err
	})
}

// multi applies operations as one. If one of them failed, at is its
// index.
func (c *Client) multi(ctx context.Context, ops []any) (at int, err error) {
	results, err := call(ctx, c, func(conn conn) ([]zk.MultiResponse, error) {
		results, err := conn.Multi(ops...)
		return results, err
	})
	if err == nil {
		return 0, nil
	}
	for i, r := range results {
		if r.Error != nil {
			return i, err
		}
	}
	return -1, err
}

// make makes a node and those above it; it is no error if there is one. Those
// of the bridge's own are for whom the node is for.
func (c *Client) make(ctx context.Context, op *zk.CreateRequest) error {
	_, err := c.multi(ctx, []any{op})
	if errors.Is(err, zk.ErrNoNode) {
		parent := &zk.CreateRequest{Path: parentOf(op.Path), Data: []byte{}, Acl: aclAbove(parentOf(op.Path), op.Acl)}
		if err := c.make(ctx, parent); err != nil {
			return err
		}
		_, err = c.multi(ctx, []any{op})
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("make %s: %w", op.Path, err)
	}
	return nil
}

// mayMake returns why the ACL does not let us make a node that does not exist,
// or the first of those above it that do not: it asks for it in a transaction
// that fails in any case, so that nobody who watches is notified of anything.
func (c *Client) mayMake(ctx context.Context, path string) error {
	for parentOf(path) != "/" {
		stat, err := c.exists(ctx, parentOf(path))
		if err != nil {
			return err
		}
		if stat != nil {
			break
		}
		path = parentOf(path)
	}
	_, err := c.multi(ctx, []any{
		&zk.CreateRequest{Path: path, Data: []byte{}, Acl: zk.WorldACL(zk.PermAll)},
		&zk.CheckVersionRequest{Path: parentOf(path), Version: math.MaxInt32},
	})
	if errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return nil
}

// conn is the library's connection under a chroot, as Java's client has it:
// every path is one below it, in requests and in what is reported of changes.
type conn struct {
	*zk.Conn
	root string // absolute, without a slash at its end; empty: none
}

func (c conn) under(path string) string {
	if path == "/" && c.root != "" {
		return c.root
	}
	return c.root + path
}

// above returns a path as the users of the connection know it.
func (c conn) above(path string) string {
	if rest := strings.TrimPrefix(path, c.root); rest != "" {
		return rest
	}
	return "/"
}

func (c conn) Children(path string) ([]string, *zk.Stat, error) {
	return c.Conn.Children(c.under(path)) //nolint:wrapcheck // call translates it
}

func (c conn) ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error) { //nolint:revive // as the library has it
	return c.Conn.ChildrenW(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) Exists(path string) (bool, *zk.Stat, error) {
	return c.Conn.Exists(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error) { //nolint:revive // as the library has it
	return c.Conn.ExistsW(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) Get(path string) ([]byte, *zk.Stat, error) {
	return c.Conn.Get(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error) { //nolint:revive // as the library has it
	return c.Conn.GetW(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) GetACL(path string) ([]zk.ACL, *zk.Stat, error) {
	return c.Conn.GetACL(c.under(path)) //nolint:wrapcheck // as above
}

func (c conn) SetACL(path string, acl []zk.ACL, version int32) (*zk.Stat, error) {
	return c.Conn.SetACL(c.under(path), acl, version) //nolint:wrapcheck // as above
}

func (c conn) Multi(ops ...any) ([]zk.MultiResponse, error) {
	if c.root == "" {
		return c.Conn.Multi(ops...) //nolint:wrapcheck // as above
	}
	below := make([]any, len(ops))
	for i, op := range ops {
		below[i] = c.operation(op)
	}
	results, err := c.Conn.Multi(below...)
	if errors.Is(err, zk.ErrNoNode) && c.makeRoot() {
		return c.Conn.Multi(below...) //nolint:wrapcheck // as above
	}
	return results, err //nolint:wrapcheck // as above
}

func (c conn) operation(op any) any {
	switch op := op.(type) {
	case *zk.CreateRequest:
		below := *op
		below.Path = c.under(op.Path)
		return &below
	case *zk.SetDataRequest:
		below := *op
		below.Path = c.under(op.Path)
		return &below
	case *zk.DeleteRequest:
		below := *op
		below.Path = c.under(op.Path)
		return &below
	case *zk.CheckVersionRequest:
		below := *op
		below.Path = c.under(op.Path)
		return &below
	default:
		panic(fmt.Sprintf("an operation of type %T", op)) // the package makes none
	}
}

// makeRoot makes the chroot, and reports whether there was none before.
func (c conn) makeRoot() bool {
	if there, _, err := c.Conn.Exists(c.root); there || err != nil {
		return false
	}
	for i := 1; i <= len(c.root); i++ {
		if i < len(c.root) && c.root[i] != '/' {
			continue
		}
		if _, err := c.Create(c.root[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return false // the request fails as before
		}
	}
	return true
}

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

// An inbox gathers what the library's callback reports, which must not block.
// Several changes of one path are one. It knows which watches are armed: the
// library keeps a channel for each time that one is, so that a node is read
// without a watch while one of it is out.
type inbox struct {
	ready chan struct{}

	mu     sync.Mutex
	paths  map[string]struct{}
	armed  map[watch]struct{}
	broken bool // the connection was lost since the last reset
}

// A watch reports the next change of a node, once.
type watch struct {
	path string
	of   watched
}

// What a watch reports, apart from the end of the node.
type watched uint8

const (
	ofData     watched = iota // the creation of the node too
	ofChildren                // their names
)

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), paths: make(map[string]struct{}), armed: make(map[watch]struct{})}
}

// arm reports whether a watch is to be armed, and takes it for armed from now
// on: before the request, because its event may come before the answer is seen.
func (i *inbox) arm(w watch) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.armed[w]; ok {
		return false
	}
	i.armed[w] = struct{}{}
	return true
}

// disarm takes back that a watch was armed: the request failed.
func (i *inbox) disarm(w watch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.armed, w)
}

// watches returns how many are armed.
func (i *inbox) watches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.armed)
}

func (i *inbox) changed(e zk.Event) {
	i.mu.Lock()
	i.paths[e.Path] = struct{}{}
	if e.Type != zk.EventNodeChildrenChanged {
		delete(i.armed, watch{e.Path, ofData})
	}
	if e.Type == zk.EventNodeChildrenChanged || e.Type == zk.EventNodeDeleted {
		delete(i.armed, watch{e.Path, ofChildren})
	}
	i.mu.Unlock()
	i.wake()
}

func (i *inbox) disconnected() {
	i.mu.Lock()
	i.broken = true
	i.mu.Unlock()
	i.wake()
}

func (i *inbox) wake() {
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// drain returns the changed paths and whether the connection was lost, and
// forgets the paths.
func (i *inbox) drain() ([]string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	paths := slices.Sorted(maps.Keys(i.paths))
	clear(i.paths)
	return paths, i.broken
}

// reset forgets what changed: all of it is about to be read. What is armed stays
// armed.
func (i *inbox) reset() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.paths)
	i.broken = false
}
