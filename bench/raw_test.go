package bench_test

import (
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// workers is how many calls are in flight at a time, ours and the floor's.
const workers = 16

// raw is a bare client of ZooKeeper: the floor.
type raw struct{ conn *zk.Conn }

func dialRaw(t *testing.T, server string) raw {
	t.Helper()
	conn, events, err := zk.Connect([]string{server}, 30*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	must(t, err)
	t.Cleanup(conn.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			return raw{conn}
		}
	}
	t.Fatal("no session")
	return raw{}
}

// each calls do for every service, several at a time.
func each(t *testing.T, services int, do func(i int) error) {
	t.Helper()
	var running sync.WaitGroup
	next := make(chan int)
	for range workers {
		running.Go(func() {
			for i := range next {
				check(t, do(i))
			}
		})
	}
	for i := range services {
		next <- i
	}
	close(next)
	running.Wait()
}

func dir(root string, i int) string { return root + "/" + iface(i) + "/providers" }

// provider is a node of about the size that the bridge writes.
func provider(i, n int) string {
	text := fmt.Sprintf("tri://10.%d.%d.%d:20000/%s?category=providers&endPointWeight=1&interface=%s&meshClusterID=%s"+
		"&meshHostAddr=%s:20000&meshLocality=eu-1/eu-1a&side=provider&weight=100&xdsb=kijc615abbbcl", i>>8, i&255, n+1, iface(i), iface(i), clusterName(i), host(i))
	return url.QueryEscape(text)
}

// create makes a node and, where they are missing, all above it.
func (r raw) create(path string) error {
	_, err := r.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	return err
}

// write stores a whole fleet as fast as it goes: one transaction for each
// service, several in flight at a time.
func (r raw) write(t *testing.T, root string, services int) {
	t.Helper()
	must(t, r.create(root))
	acl := zk.WorldACL(zk.PermAll)
	each(t, services, func(i int) error {
		ops := []any{
			&zk.CreateRequest{Path: root + "/" + iface(i), Acl: acl},
			&zk.CreateRequest{Path: dir(root, i), Acl: acl},
		}
		for n := range perService {
			ops = append(ops, &zk.CreateRequest{Path: dir(root, i) + "/" + provider(i, n), Acl: acl})
		}
		_, err := r.conn.Multi(ops...)
		return err
	})
}

// count reads a whole fleet and returns how many nodes it has.
func (r raw) count(t *testing.T, root string, services int) int {
	t.Helper()
	var mu sync.Mutex
	total := 0
	each(t, services, func(i int) error {
		children, _, err := r.conn.Children(dir(root, i))
		mu.Lock()
		defer mu.Unlock()
		total += len(children)
		return err
	})
	return total
}

// read lists a whole tree, and watches it as everybody does who follows it.
func (r raw) read(t *testing.T, root string) int {
	t.Helper()
	defer r.conn.Close()
	names, _, _, err := r.conn.ChildrenW(root)
	must(t, err)
	counts := make([]int, len(names))
	each(t, len(names), func(i int) error {
		children, _, _, err := r.conn.ChildrenW(root + "/" + names[i] + "/providers")
		counts[i] = len(children)
		return err
	})
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// appears creates a node and returns when a bare watcher was notified of it, or
// the creation was confirmed if that was before.
func (r raw) appears(t *testing.T, i int) time.Time {
	t.Helper()
	_, _, changed, err := r.conn.ChildrenW(dir(root, i))
	must(t, err)
	seen := make(chan time.Time, 1)
	go func() { <-changed; seen <- time.Now() }()
	must(t, r.create(dir(root, i)+"/"+provider(i, 100)))
	confirmed := time.Now()
	if at := <-seen; at.Before(confirmed) {
		return at
	}
	return confirmed
}

type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}
