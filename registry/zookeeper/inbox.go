package zookeeper

import (
	"maps"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

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
