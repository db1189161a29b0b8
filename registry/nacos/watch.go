package nacos

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// watching knows which services are subscribed, and in which of them others
// changed something.
type watching struct {
	ready chan struct{}

	mu       sync.Mutex
	services map[serviceKey]*subscription
	changed  map[registry.Group]struct{}
}

// A subscription is what pushes about a service are judged by.
type subscription struct {
	group registry.Group
	phase phase
	seen  content // when it was read
}

// A phase says how much is known of a service.
type phase uint8

const (
	beingRead phase = iota // any push may be newer than the answer
	wasRead
	wasWritten // pushes show what we wrote, and it is about to be read back
)

func newWatching() *watching {
	return &watching{
		ready: make(chan struct{}, 1), services: make(map[serviceKey]*subscription), changed: make(map[registry.Group]struct{}),
	}
}

// begin begins a reading of a service that is subscribed from then on.
func (w *watching) begin(k serviceKey, g registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.services[k] = &subscription{group: g}
	delete(w.changed, g)
}

// end forgets a service.
func (w *watching) end(k serviceKey, g registry.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.services, k)
	delete(w.changed, g)
}

// advance takes in that a service was read, or is about to be written.
func (w *watching) advance(k serviceKey, to phase, seen content) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.services[k]; s != nil {
		s.phase, s.seen = to, seen
	}
}

// groupOf returns the group of a service that is subscribed.
func (w *watching) groupOf(k serviceKey) (registry.Group, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.services[k]; s != nil {
		return s.group, true
	}
	return registry.Group{}, false
}

// pushed takes in what a push shows of a service of which our connection publishes
// so many.
func (w *watching) pushed(k serviceKey, shown content, publishes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.services[k]
	if s == nil || s.phase == wasWritten || s.phase == wasRead && shown.ours == publishes && shown.others == s.seen.others {
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
	ours   int               // of what our connection publishes
	others [sha256.Size]byte // the sum of all else
}

func contentOf(held []registry.Held) (c content) {
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

// Changed implements registry.Watched.
func (t *Target) Changed() <-chan struct{} {
	t.client.listen(t.received)
	return t.watching.ready
}

// Changes implements registry.Watched.
func (t *Target) Changes() []registry.Group {
	w := t.watching
	w.mu.Lock()
	defer w.mu.Unlock()
	groups := slices.SortedFunc(maps.Keys(w.changed), registry.Group.Compare)
	clear(w.changed)
	return groups
}

// Watch implements registry.Watched. It asks by subscribing, which a server takes
// any number of times: so a service is subscribed on the connection that there
// is, and nothing is missed between answer and pushes.
func (t *Target) Watch(ctx context.Context, g registry.Group) ([]registry.Held, error) {
	return t.read(ctx, g, func(ctx context.Context, k serviceKey) ([]metadata.NacosInstance, error) {
		t.watching.begin(k, g)
		instances, err := t.client.subscribe(ctx, k)
		if status.Code(err) == codes.ResourceExhausted { // a push of it would end the connection, and what is published with it
			t.watching.end(k, g)
			_ = t.client.unsubscribe(ctx, k)
		}
		return instances, err
	})
}

// Read implements registry.Target: of one address it returns the instances of
// every other owner and one of ours, because each connection may publish it. It
// waits out the lag of the server's reads behind the last write.
func (t *Target) Read(ctx context.Context, g registry.Group) ([]registry.Held, error) {
	return t.read(ctx, g, func(ctx context.Context, k serviceKey) ([]metadata.NacosInstance, error) {
		if _, watched := t.watching.groupOf(k); watched {
			if err := t.client.unsubscribe(ctx, k); err != nil {
				return nil, err
			}
			t.watching.end(k, g)
		}
		return t.client.query(ctx, k)
	})
}

// received takes in a push. Servers do not say which namespace it is of: it is
// judged for each. The goroutine that receives calls it.
func (t *Target) received(p push) {
	if p.kind != "NotifySubscriberRequest" {
		return
	}
	k, info, err := p.notice()
	if err != nil {
		t.client.opts.Log.Warn("push left out", "err", err) // the next reading makes up for it
		return
	}
	var instances []metadata.NacosInstance
	for _, h := range info.Hosts {
		if h.Enable { // answers hold no others
			instances = append(instances, fromModel(h))
		}
	}
	for _, layout := range t.opts.Layouts {
		for _, scope := range layout.Scopes() {
			k.namespace = scope.Namespace
			if g, ok := t.watching.groupOf(k); ok {
				published := t.client.publication(k)
				t.watching.pushed(k, contentOf(t.holds(g, instances, published)), len(published))
			}
		}
	}
}
