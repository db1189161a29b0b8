package nacos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Changed implements registry.Watcher.
func (t *Target) Changed() <-chan struct{} {
	t.client.listen(t.received)
	return t.subscriptions.ready
}

// Changes implements registry.Watcher.
func (t *Target) Changes() []registry.Group {
	w := t.subscriptions
	w.mu.Lock()
	defer w.mu.Unlock()
	groups := slices.SortedFunc(maps.Keys(w.changed), registry.Group.Compare)
	clear(w.changed)
	return groups
}

// Watch implements registry.Watcher. It subscribes at each call, which servers accept. So the
// service is subscribed on the current connection, and no change is missed between the
// answer and the pushes.
func (t *Target) Watch(ctx context.Context, g registry.Group) ([]registry.Stored, error) {
	return t.read(ctx, g, func(ctx context.Context, k serviceKey) (*model.Service, error) {
		t.subscriptions.begin(k, g)
		info, err := subscribe(ctx, t.client, k)
		if status.Code(err) == codes.ResourceExhausted { // its push would end the connection, with our instances
			t.subscriptions.end(k, g)
			_ = unsubscribe(ctx, t.client, k)
		}
		return info, err
	})
}

// Read implements registry.Target. Several connections may publish the same address: for each
// address it returns the instances of all other owners and one of ours. It waits until the
// server's reads show the last write.
func (t *Target) Read(ctx context.Context, g registry.Group) ([]registry.Stored, error) {
	return t.read(ctx, g, func(ctx context.Context, k serviceKey) (*model.Service, error) {
		if _, watched := t.subscriptions.groupOf(k); watched {
			if err := unsubscribe(ctx, t.client, k); err != nil {
				return nil, err
			}
			t.subscriptions.end(k, g)
		}
		return query(ctx, t.client, k)
	})
}

// received handles a push, which may be of any namespace.
func (t *Target) received(k serviceKey, info *model.Service) {
	disabled := func(i model.Instance) bool { return !i.Enable } // answers leave these out
	instances := instancesOf(slices.DeleteFunc(info.Hosts, disabled))
	for _, layout := range t.opts.Layouts {
		for _, scope := range layout.Scopes() {
			k.namespace = scope.Namespace
			if g, ok := t.subscriptions.groupOf(k); ok {
				published := t.client.publication(k)
				t.subscriptions.pushed(k, contentOf(t.storedOf(g, instances, published)), len(published))
			}
		}
	}
}

// A readFunc reads the instances of a service.
type readFunc func(context.Context, serviceKey) (*model.Service, error)

func (t *Target) read(ctx context.Context, g registry.Group, ask readFunc) ([]registry.Stored, error) {
	if err := t.checkGroup(g); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", g, registry.ErrRefused, err)
	}
	instances, err := t.readWithoutLag(ctx, g, ask)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", g, err)
	}
	out, err := t.parts(ctx, g)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", g, err)
	}
	own := make(map[string]registry.Stored)
	for _, h := range instances {
		switch old, twice := own[h.Key]; {
		case h.Owner != t.opts.Owner:
			out = append(out, h)
		case !twice || h.Live && !old.Live: // this connection takes precedence over our others
			own[h.Key] = h
		}
	}
	out = slices.AppendSeq(out, maps.Values(own))
	slices.SortStableFunc(out, func(a, b registry.Stored) int { return a.Compare(b.Entry) })
	return out, nil
}

// readWithoutLag reads a service until the server shows the last write of our connection. A
// difference after ReadBack is not a lag.
func (t *Target) readWithoutLag(ctx context.Context, g registry.Group, ask readFunc) ([]registry.Stored, error) {
	k := keyOf(g)
	for look := 20 * time.Millisecond; ; look *= 2 {
		lag := t.lag(k)
		info, err := ask(ctx, k)
		if err != nil {
			return nil, err
		}
		instances := instancesOf(info.Hosts)
		published := t.client.publication(k)
		stored := t.storedOf(g, instances, published)
		seen := contentOf(stored)
		if lag <= 0 || seen.ours == len(published) && !t.stale(stored) {
			t.findForeign(g, instances)
			t.subscriptions.advance(k, read, seen)
			return stored, nil
		}
		registry.Sleep(ctx, min(look, lag))
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("wait until the server shows the last write: %w", err)
		}
	}
}

// lag returns how long the server's reads of a service may still lag behind our last write.
func (t *Target) lag(k serviceKey) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	lag := t.opts.ReadBack - time.Since(t.wrote[k])
	if lag <= 0 {
		delete(t.wrote, k)
	}
	return lag
}

// stale reports whether an entry is ours that our connection does not publish.
func (t *Target) stale(stored []registry.Stored) bool {
	return slices.ContainsFunc(stored, func(h registry.Stored) bool { return h.Owner == t.opts.Owner && !h.Live })
}

// storedOf returns the instances of a service as entries. Those that our connection publishes
// are live.
func (t *Target) storedOf(g registry.Group, instances []metadata.NacosInstance, published batch) []registry.Stored {
	ours := make(map[string]bool)
	for _, text := range published {
		ours[text] = true
	}
	out := make([]registry.Stored, 0, len(instances))
	for _, in := range instances {
		out = append(out, t.stored(g, in, ours))
	}
	return out
}

func (t *Target) stored(g registry.Group, in metadata.NacosInstance, ours map[string]bool) registry.Stored {
	text := in.String()
	h := registry.Stored{Entry: registry.Entry{Group: g, Key: in.Key(), Value: text}}
	if mark, err := in.Mark(); err == nil {
		h.Owner, h.Live = t.opts.Signer.Owner(h.Entry, mark, t.opts.Owner), ours[text]
		h.Leaving = mark.Leaving && h.Owner != t.opts.Owner
	}
	return h
}
