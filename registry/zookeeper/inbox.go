package zookeeper

import (
	"maps"
	"slices"
	"sync"
)

// An inbox gathers what the library's callback tells, which must not block.
// Several changes of one path are one.
type inbox struct {
	ready chan struct{}

	mu     sync.Mutex
	paths  map[string]struct{}
	broken bool // the connection was lost since the last reset
}

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), paths: make(map[string]struct{})}
}

func (i *inbox) changed(path string) {
	i.mu.Lock()
	i.paths[path] = struct{}{}
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

// take returns the changed paths and whether the connection was lost, and
// forgets the paths.
func (i *inbox) take() ([]string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	paths := slices.Sorted(maps.Keys(i.paths))
	clear(i.paths)
	return paths, i.broken
}

// reset forgets everything: all of it is about to be read.
func (i *inbox) reset() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.paths)
	i.broken = false
}
