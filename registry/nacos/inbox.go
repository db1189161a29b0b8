package nacos

import (
	"sync"
)

// An inbox holds the pushes of one connection until the reader handles them. Of
// each service it holds the newest.
type inbox struct {
	ready chan struct{}

	mu     sync.Mutex
	latest map[serviceKey]notice
}

// A notice is what pushes reported of a service.
type notice struct {
	snapshot snapshot
	mixed    bool // by their order it is unclear which is the newest
}

// maxNotices bounds an inbox. Pushes beyond it are lost; the services are
// verified later anyway.
const maxNotices = 1 << 17

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), latest: make(map[serviceKey]notice)}
}

// put adds a push. Only the goroutine that receives calls it.
func (i *inbox) put(k serviceKey, t snapshot) {
	i.mu.Lock()
	old, ok := i.latest[k]
	n := notice{snapshot: t}
	switch {
	case ok && t.stamp <= old.snapshot.stamp && t.sum != old.snapshot.sum:
		n = notice{snapshot: old.snapshot, mixed: true}
	case ok:
		n.mixed = old.mixed
	}
	if ok || len(i.latest) < maxNotices {
		i.latest[k] = n
	}
	i.mu.Unlock()
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// drain removes and returns the notices.
func (i *inbox) drain() map[serviceKey]notice {
	i.mu.Lock()
	defer i.mu.Unlock()
	latest := i.latest
	i.latest = make(map[serviceKey]notice)
	return latest
}
