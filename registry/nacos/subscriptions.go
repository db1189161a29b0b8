package nacos

import (
	"crypto/sha256"
	"maps"
	"slices"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
)

// subscriptions are the subscribed services of a target, and the groups that others changed.
type subscriptions struct {
	ready chan struct{}

	mu       sync.Mutex
	services map[serviceKey]*subscription
	changed  map[registry.Group]struct{}
}

// A subscription is a subscribed service, and the content with which its pushes are compared.
type subscription struct {
	group registry.Group
	phase phase
	seen  content // at the last read
}

// A phase is the state of a subscription.
type phase uint8

const (
	reading phase = iota // a push may be newer than the answer
	read
	written // pushes show our write, which is about to be read back
)

func newSubscriptions() *subscriptions {
	return &subscriptions{
		ready:    make(chan struct{}, 1),
		services: make(map[serviceKey]*subscription), changed: make(map[registry.Group]struct{}),
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

// advance sets the phase of a service that was read, or is about to be written.
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

// pushed handles a push. It marks the group as changed unless the push shows the last read, or
// our write. Published is the number of instances that our connection publishes.
func (w *subscriptions) pushed(k serviceKey, shown content, published int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.services[k]
	if s == nil || s.phase == written || s.phase == read && shown.ours == published && shown.others == s.seen.others {
		return
	}
	w.changed[s.group] = struct{}{}
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// content is the content of a service in an answer or a push.
type content struct {
	ours   int               // number of instances that our connection publishes
	others [sha256.Size]byte // sum of all others
}

func contentOf(stored []registry.Stored) (c content) {
	ours := make(map[string]bool)
	for _, h := range stored {
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
