package nacos

import (
	"sync"
)

// An inbox holds the pushes of one connection until the reader handles them. It holds the
// newest push of each service.
type inbox struct {
	ready chan struct{}

	mu     sync.Mutex
	latest map[serviceKey]notice
}

// A notice is the newest push of a service.
type notice struct {
	snapshot snapshot
	mixed    bool // pushes were out of order, so that another one may be newer
}

// maxNotices bounds an inbox. Further pushes are dropped, because every service is verified
// later.
const maxNotices = 1 << 17

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), latest: make(map[serviceKey]notice)}
}

// put adds a push. Only the goroutine that receives pushes calls it.
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
