package nacos

import "sync"

// An inbox gathers the pushes of one connection until its reader comes to
// them. Those of one service become one: the newest.
type inbox struct {
	ready chan struct{}

	mu     sync.Mutex
	latest map[serviceKey]notice
	count  int
}

// A notice is what pushes told of a service.
type notice struct {
	told  told
	mixed bool // they came in an order that leaves the newest open
}

// maxNotices bounds an inbox. What goes over it counts as lost, which
// verifying makes up for.
const maxNotices = 1 << 17

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), latest: make(map[serviceKey]notice)}
}

// put takes a push in. Only the goroutine that receives calls it.
func (i *inbox) put(k serviceKey, t told) {
	i.mu.Lock()
	old, ok := i.latest[k]
	n := notice{told: t}
	switch {
	case ok && t.stamp <= old.told.stamp && t.sum != old.told.sum:
		n = notice{told: old.told, mixed: true}
	case ok:
		n.mixed = old.mixed
	}
	if ok || len(i.latest) < maxNotices {
		i.latest[k] = n
	}
	i.count++
	i.mu.Unlock()
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// take returns what came in, and how many pushes that were, and forgets it.
func (i *inbox) take() (map[serviceKey]notice, int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	latest, count := i.latest, i.count
	i.latest, i.count = make(map[serviceKey]notice), 0
	return latest, count
}
