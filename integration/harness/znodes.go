package harness

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// Znode is what a znode holds and the transactions that touched it last. It is
// comparable: two equal ones mean that nobody wrote in between.
type Znode struct {
	Data                               string
	Created, Modified, ChildrenChanged int64 // czxid, mzxid, pzxid
	Ephemeral                          bool
}

// Znodes is a client of ZooKeeper for a test's own eyes.
type Znodes struct {
	conn *zk.Conn
	done chan struct{} // closed when the test has ended
}

// Connect connects to the servers for the length of the test.
func Connect(t testing.TB, servers ...string) *Znodes {
	t.Helper()
	conn, events, err := zk.Connect(servers, 10*time.Second, zk.WithLogger(silent{}))
	must(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		close(done)
		conn.Close()
	})
	timer := time.NewTimer(startTime)
	defer timer.Stop()
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return &Znodes{conn, done}
			}
		case <-timer.C:
			t.Fatalf("no session with %v", servers)
		}
	}
}

// Session returns the id of the session that the client has now.
func (z *Znodes) Session() int64 { return z.conn.SessionID() }

// Children returns the names of the children in order; none where the path
// does not exist.
func (z *Znodes) Children(t testing.TB, at string) []string {
	t.Helper()
	var names []string
	err := retried(func() (err error) {
		names, _, err = z.conn.Children(at)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	must(t, err)
	slices.Sort(names)
	return names
}

// Data returns what a node holds; nothing where it does not exist.
func (z *Znodes) Data(t testing.TB, at string) string {
	t.Helper()
	var data []byte
	err := retried(func() (err error) {
		data, _, err = z.conn.Get(at)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return ""
	}
	must(t, err)
	return string(data)
}

// Tree returns every znode at and below the path; none where it does not exist.
func (z *Znodes) Tree(t testing.TB, root string) map[string]Znode {
	t.Helper()
	tree := make(map[string]Znode)
	z.walk(t, root, tree)
	return tree
}

func (z *Znodes) walk(t testing.TB, at string, tree map[string]Znode) {
	t.Helper()
	var data []byte
	var stat *zk.Stat
	err := retried(func() (err error) {
		data, stat, err = z.conn.Get(at)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return
	}
	must(t, err)
	tree[at] = Znode{string(data), stat.Czxid, stat.Mzxid, stat.Pzxid, stat.EphemeralOwner != 0}
	for _, name := range z.Children(t, at) {
		z.walk(t, path.Join(at, name), tree)
	}
}

// retried reads again where the server went away meanwhile, as servers of an
// ensemble do in these tests.
func retried(read func() error) error {
	err := read()
	for start := time.Now(); lost(err) && time.Since(start) < startTime; err = read() {
	}
	return err
}

func lost(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer)
}

// Create creates a persistent znode and its parents.
func (z *Znodes) Create(t testing.TB, at, data string) {
	t.Helper()
	if parent := path.Dir(at); parent != "/" {
		var there bool
		must(t, retried(func() (err error) {
			there, _, err = z.conn.Exists(parent)
			return err
		}))
		if !there {
			z.Create(t, parent, "")
		}
	}
	_, err := z.conn.Create(at, []byte(data), 0, zk.WorldACL(zk.PermAll))
	must(t, err)
}

// Replace deletes nodes and creates others without data, in one transaction.
func (z *Znodes) Replace(t testing.TB, deleted, created []string) {
	t.Helper()
	var ops []any
	for _, at := range deleted {
		ops = append(ops, &zk.DeleteRequest{Path: at, Version: -1})
	}
	for _, at := range created {
		ops = append(ops, &zk.CreateRequest{Path: at, Acl: zk.WorldACL(zk.PermAll)})
	}
	_, err := z.conn.Multi(ops...)
	must(t, err)
}

// Set replaces the data of a node.
func (z *Znodes) Set(t testing.TB, at, data string) {
	t.Helper()
	must(t, retried(func() error {
		_, err := z.conn.Set(at, []byte(data), -1)
		return err
	}))
}

// CreateAll creates znodes whose parents exist, a hundred in each step.
func (z *Znodes) CreateAll(t testing.TB, paths []string) {
	t.Helper()
	z.steps(t, paths, func(at string) any { return &zk.CreateRequest{Path: at, Acl: zk.WorldACL(zk.PermAll)} })
}

// DeleteAll deletes znodes, a hundred in each step.
func (z *Znodes) DeleteAll(t testing.TB, paths []string) {
	t.Helper()
	z.steps(t, paths, func(at string) any { return &zk.DeleteRequest{Path: at, Version: -1} })
}

func (z *Znodes) steps(t testing.TB, paths []string, step func(at string) any) {
	t.Helper()
	for part := range slices.Chunk(paths, 100) {
		steps := make([]any, 0, len(part))
		for _, at := range part {
			steps = append(steps, step(at))
		}
		_, err := z.conn.Multi(steps...)
		must(t, err)
	}
}

// Prune deletes a znode and everything below it, in one step.
func (z *Znodes) Prune(t testing.TB, root string) {
	t.Helper()
	var steps []any
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(z.Tree(t, root)))) {
		steps = append(steps, &zk.DeleteRequest{Path: at, Version: -1})
	}
	_, err := z.conn.Multi(steps...)
	must(t, err)
}

// Deny removes permissions of a znode, such as zk.PermRead, of everybody but
// that to give them back.
func (z *Znodes) Deny(t testing.TB, at string, permissions int32) {
	t.Helper()
	z.acl(t, at, zk.PermAll&^permissions)
}

// Allow gives everybody every permission.
func (z *Znodes) Allow(t testing.TB, at string) {
	t.Helper()
	z.acl(t, at, zk.PermAll)
}

func (z *Znodes) acl(t testing.TB, at string, permissions int32) {
	t.Helper()
	_, err := z.conn.SetACL(at, zk.WorldACL(permissions|zk.PermAdmin), -1)
	must(t, err)
}

// Delete deletes one znode.
func (z *Znodes) Delete(t testing.TB, at string) {
	t.Helper()
	must(t, z.conn.Delete(at, -1))
}

// ChildrenWatch records when the children of a znode changed and to what.
type ChildrenWatch struct {
	mu   sync.Mutex
	seen []sighting
}

type sighting struct {
	at    time.Time
	names []string
}

// Watch watches the children of a path for the length of the test. As a
// subscriber does it outlives servers and sessions, and a path that is not
// there has no children. It looks again each second, because after a reconnect
// the library may ask for changes since a moment that lies behind them.
func (z *Znodes) Watch(t testing.TB, at string) *ChildrenWatch {
	t.Helper()
	w := &ChildrenWatch{}
	events, err := z.look(at, w)
	must(t, err)
	again := time.NewTicker(time.Second)
	go func() {
		defer again.Stop()
		for err == nil {
			select {
			case <-events:
				events, err = z.look(at, w)
			case <-again.C:
				if names, _, err := z.conn.Children(at); err == nil {
					w.observe(names)
				}
			case <-z.done:
				return
			}
		}
	}()
	return w
}

// look records the children of a path and watches them; it tries until the test
// ends.
func (z *Znodes) look(at string, w *ChildrenWatch) (<-chan zk.Event, error) {
	for {
		names, _, events, err := z.conn.ChildrenW(at)
		if errors.Is(err, zk.ErrNoNode) {
			_, _, events, err = z.conn.ExistsW(at)
		}
		if err == nil {
			w.observe(names)
			return events, nil
		}
		timer := time.NewTimer(poll)
		select {
		case <-timer.C:
		case <-z.done:
			timer.Stop()
			return nil, err
		}
	}
}

func (w *ChildrenWatch) observe(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(names)
	if n := len(w.seen); n == 0 || !slices.Equal(w.seen[n-1].names, names) {
		w.seen = append(w.seen, sighting{time.Now(), names})
	}
}

// Fewest returns the smallest number of children that was ever seen.
func (w *ChildrenWatch) Fewest() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	fewest := len(w.seen[0].names)
	for _, s := range w.seen {
		fewest = min(fewest, len(s.names))
	}
	return fewest
}

// AwaitLatest waits until the children satisfy a condition and returns when
// they were first seen to.
func (w *ChildrenWatch) AwaitLatest(t testing.TB, within time.Duration, what string, holds func([]string) bool) time.Time {
	t.Helper()
	var at time.Time
	Eventually(t, within, what, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		last := w.seen[len(w.seen)-1]
		if !holds(last.names) {
			return fmt.Errorf("children are %q", last.names)
		}
		for _, s := range slices.Backward(w.seen) {
			if !holds(s.names) {
				break
			}
			at = s.at
		}
		return nil
	})
	return at
}

// silent discards what the ZooKeeper client logs.
type silent struct{}

func (silent) Printf(string, ...any) {}
