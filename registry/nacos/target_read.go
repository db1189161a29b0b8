package nacos

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
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
	return t.read(ctx, g, func(ctx context.Context, k serviceKey) (*model.Service, error) {
		t.watching.begin(k, g)
		info, err := subscribe(ctx, t.client, k)
		if status.Code(err) == codes.ResourceExhausted { // a push of it would end the connection, and what is published with it
			t.watching.end(k, g)
			_ = unsubscribe(ctx, t.client, k)
		}
		return info, err
	})
}

// Read implements registry.Target: of one address it returns the instances of
// every other owner and one of ours, because each connection may publish it. It
// waits out the lag of the server's reads behind the last write.
func (t *Target) Read(ctx context.Context, g registry.Group) ([]registry.Held, error) {
	return t.read(ctx, g, func(ctx context.Context, k serviceKey) (*model.Service, error) {
		if _, watched := t.watching.groupOf(k); watched {
			if err := unsubscribe(ctx, t.client, k); err != nil {
				return nil, err
			}
			t.watching.end(k, g)
		}
		return query(ctx, t.client, k)
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
	disabled := func(i model.Instance) bool { return !i.Enable } // which answers leave out
	instances := instancesOf(slices.DeleteFunc(info.Hosts, disabled))
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

// asking asks what instances a service has.
type asking func(context.Context, serviceKey) (*model.Service, error)

func (t *Target) read(ctx context.Context, g registry.Group, ask asking) ([]registry.Held, error) {
	if err := t.known(g); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", g, registry.ErrRefused, err)
	}
	held, err := t.readWithoutLag(ctx, g, ask)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", g, err)
	}
	out, err := t.parts(ctx, g)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", g, err)
	}
	own := make(map[string]registry.Held)
	for _, h := range held {
		switch old, twice := own[h.Key]; {
		case h.Owner != t.opts.Owner:
			out = append(out, h)
		case !twice || h.Live && !old.Live: // of another connection of ours the one that this holds counts
			own[h.Key] = h
		}
	}
	out = slices.AppendSeq(out, maps.Values(own))
	slices.SortStableFunc(out, func(a, b registry.Held) int { return a.Compare(b.Entry) })
	return out, nil
}

// readWithoutLag asks what a service holds until the server shows what our connection
// published last, and for ReadBack after that write at the most: then what
// differs is no lag.
func (t *Target) readWithoutLag(ctx context.Context, g registry.Group, ask asking) ([]registry.Held, error) {
	k := keyOf(g)
	for look := 20 * time.Millisecond; ; look *= 2 {
		lag := t.lag(k)
		info, err := ask(ctx, k)
		if err != nil {
			return nil, err
		}
		instances := instancesOf(info.Hosts)
		published := t.client.publication(k)
		held := t.holds(g, instances, published)
		seen := contentOf(held)
		if lag <= 0 || seen.ours == len(published) && !t.stale(held) {
			t.see(g, instances)
			t.watching.advance(k, wasRead, seen)
			return held, nil
		}
		t.client.pause(ctx, min(look, lag))
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("wait for the server's reads: %w", err)
		}
	}
}

// lag returns how long the server's reads of a service may still be behind our
// last write.
func (t *Target) lag(k serviceKey) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.opts.ReadBack - time.Since(t.wrote[k])
	if left <= 0 {
		delete(t.wrote, k)
	}
	return left
}

// stale reports whether something of ours is held that our connection does not
// publish.
func (t *Target) stale(held []registry.Held) bool {
	return slices.ContainsFunc(held, func(h registry.Held) bool { return h.Owner == t.opts.Owner && !h.Live })
}

// holds returns what the instances of a service are to this target, whose
// connection publishes some of them.
func (t *Target) holds(g registry.Group, instances []metadata.NacosInstance, published batch) []registry.Held {
	ours := make(map[string]bool)
	for _, text := range published {
		ours[text] = true
	}
	out := make([]registry.Held, 0, len(instances))
	for _, in := range instances {
		out = append(out, t.held(g, in, ours))
	}
	return out
}

func (t *Target) held(g registry.Group, in metadata.NacosInstance, ours map[string]bool) registry.Held {
	text := in.String()
	h := registry.Held{Entry: registry.Entry{Group: g, Key: in.Key(), Value: text}}
	if mark, err := in.Mark(); err == nil {
		h.Owner, h.Live = t.opts.Signer.Owner(h.Entry, mark, t.opts.Owner), ours[text]
	}
	return h
}
