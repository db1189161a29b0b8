package zookeeper

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// verifyAfter is how long after a write a folder is read back, and watched from
// then on: a write of our own ends the watch. It is long enough for the writes of
// a burst to be read back together.
const verifyAfter = 500 * time.Millisecond

// VerifyAfter implements registry.Verified. A guest reads nothing back.
func (t *Target) VerifyAfter() time.Duration {
	if t.opts.Guest {
		return 0
	}
	return verifyAfter
}

// watching knows which folders are watched for what others do. Of one that was
// written since it was read nothing is told: our own writes end its watch.
type watching struct {
	inbox  *inbox
	mu     sync.Mutex
	groups map[string]registry.Group // by folder, of those that were read
	wrote  map[string]struct{}       // folders
}

func newWatching(c *Client) *watching {
	w := &watching{inbox: newInbox(), groups: make(map[string]registry.Group), wrote: make(map[string]struct{})}
	c.subscribe(w.inbox)
	return w
}

// read forgets what was told of a folder: it is about to be read.
func (w *watching) read(folder string, group registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups[folder] = group
	delete(w.wrote, folder)
	w.inbox.forget(folder)
}

// write takes in that a folder is about to be written.
func (w *watching) write(folder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrote[folder] = struct{}{}
}

// Changed implements registry.Watched.
func (t *Target) Changed() <-chan struct{} { return t.watching.inbox.ready }

// Changes implements registry.Watched. Where a session is lost that is every group,
// for its watches went with it.
func (t *Target) Changes() (groups []registry.Group) {
	w := t.watching
	paths, _ := w.inbox.take()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, path := range paths {
		group, known := w.groups[path]
		if _, ours := w.wrote[path]; known && !ours {
			groups = append(groups, group)
		}
	}
	return groups
}

// children lists a folder and has it watched, but for a guest.
func (t *Target) children(ctx context.Context, group registry.Group, folder string) ([]string, error) {
	t.watching.read(folder, group)
	w := watch{folder, ofChildren}
	if t.opts.Guest || !t.watching.inbox.arm(w) {
		return t.client.children(ctx, folder)
	}
	names, err := call(ctx, t.client, func(conn conn) ([]string, error) {
		names, _, _, err := conn.ChildrenW(folder)
		return names, err
	})
	if err != nil {
		t.watching.inbox.disarm(w)
	}
	return names, err
}

// isOver reports whether an event is the last of all watches of a node.
func isOver(e zk.Event) bool { return e.Type == zk.EventNodeDeleted || e.Type == zk.EventNotWatching }
