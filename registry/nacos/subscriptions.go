package nacos

import (
	"crypto/sha256"
	"maps"
	"slices"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
)

// subscriptions are the subscribed services of a target, and those that others
// changed.
type subscriptions struct {
	ready chan struct{}

	mu       sync.Mutex
	services map[serviceKey]*subscription
	changed  map[registry.Group]struct{}
}

// A subscription is what pushes of a service are compared with.
type subscription struct {
	group registry.Group
	phase phase
	seen  content // as it was read
}

// A phase is the state of a subscription.
type phase uint8

const (
	reading phase = iota // any push may be newer than the answer
	read
	written // pushes show what we wrote, and it is about to be read back
)

func newSubscriptions() *subscriptions {
	return &subscriptions{
		ready: make(chan struct{}, 1), services: make(map[serviceKey]*subscription), changed: make(map[registry.Group]struct{}),
	}
}

func (w *subscriptions) begin(k serviceKey, g registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.services[k] = &subscription{group: g}
	delete(w.changed, g)
}

func (w *subscriptions) end(k serviceKey, g registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.services, k)
	delete(w.changed, g)
}

// advance records that a service was read, or is about to be written.
func (w *subscriptions) advance(k serviceKey, to phase, seen content) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.services[k]; s != nil {
		s.phase, s.seen = to, seen
	}
}

func (w *subscriptions) groupOf(k serviceKey) (registry.Group, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.services[k]; s != nil {
		return s.group, true
	}
	return registry.Group{}, false
}

// pushed records what a push shows of a service, of which our connection
// publishes so many instances.
func (w *subscriptions) pushed(k serviceKey, shown content, publishes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.services[k]
	if s == nil || s.phase == written || s.phase == read && shown.ours == publishes && shown.others == s.seen.others {
		return
	}
	w.changed[s.group] = struct{}{}
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// content is what an answer or a push shows of a service.
type content struct {
	ours   int               // instances that our connection publishes
	others [sha256.Size]byte // the sum of the others
}

func contentOf(held []registry.Stored) (c content) {
	ours := make(map[string]bool)
	for _, h := range held {
		ours[h.Value] = h.Live
	}
	sum := sha256.New()
	for _, value := range slices.Sorted(maps.Keys(ours)) {
		if ours[value] {
			c.ours++
		} else {
			sum.Write([]byte(value + "\n"))
		}
	}
	sum.Sum(c.others[:0])
	return c
}
