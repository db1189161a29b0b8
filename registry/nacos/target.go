package nacos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Layout decides which services of a server hold entries of a format. Codecs implement it.
type Layout interface {
	// Scopes returns the namespaces and groups to which the format writes, as Namespace and
	// Group.
	Scopes() []registry.Group

	// GroupOf returns the group of a service, or false if the service is not of the format.
	GroupOf(namespace, group, service string) (registry.Group, bool)
}

// TargetOptions tune a Target.
type TargetOptions struct {
	Owner    string           // metadata.Mark.Owner of the entries that this target may change
	Layouts  []Layout         // of all formats that are written
	Signer   *metadata.Signer // nil: marks are neither signed nor verified
	ReadBack time.Duration    // how long a server's reads lag behind its writes; 0: 1 s
}

// readBack is the default of TargetOptions.ReadBack.
const readBack = time.Second

// A Target writes to Nacos. Its instances exist as long as its client's connection. It
// implements registry.Target, registry.Watcher and registry.Recorder.
type Target struct {
	*recorder

	client        *Client
	opts          TargetOptions
	subscriptions *subscriptions

	mu        sync.Mutex
	wrote     map[serviceKey]time.Time // when a service was last written, see lag
	foreignIn map[registry.Group]error // why nothing may be added to a service, see Exclusive
}

// NewTarget returns a target that writes through a client.
func NewTarget(c *Client, o TargetOptions) (*Target, error) {
	if len(o.Owner) != metadata.OwnerLen {
		return nil, fmt.Errorf("owner must be a fingerprint of %d bytes (got %q)", metadata.OwnerLen, o.Owner)
	}
	if len(o.Layouts) == 0 {
		return nil, errors.New("a Nacos target requires a format")
	}
	o.ReadBack = cmp.Or(o.ReadBack, readBack)
	return &Target{
		recorder: &recorder{c, o.Owner, o.ReadBack}, client: c, opts: o, subscriptions: newSubscriptions(),
		wrote: make(map[serviceKey]time.Time), foreignIn: make(map[registry.Group]error),
	}, nil
}

// Capabilities implements registry.Target. Lost is ready after the connection was replaced,
// because instances are deleted with their connection. The target is Shared, because an
// instance exists as long as any connection publishes it. Groups are read back, because a
// server that restarts may confirm a batch and lose it.
func (t *Target) Capabilities() registry.Capabilities {
	return registry.Capabilities{
		Sessions: true, Lost: t.client.Lost(), Shared: true, Records: t.recorder, VerifyAfter: t.opts.ReadBack,
		Watcher: t, Leave: metadata.Leave,
	}
}

// Groups implements registry.Target. It lists the services of all scopes.
func (t *Target) Groups(ctx context.Context) ([]registry.Group, error) {
	seen := make(map[Scope]bool)
	var out []registry.Group
	for _, layout := range t.opts.Layouts {
		for _, s := range layout.Scopes() {
			at := Scope{s.Namespace, s.Group}
			if seen[at] {
				continue
			}
			seen[at] = true
			names, err := listNames(ctx, t.client, at.Namespace, at.Group)
			if err != nil {
				return nil, fmt.Errorf("list namespace %q group %q: %w", at.Namespace, at.Group, err)
			}
			for _, name := range names {
				if g, layout := t.groupOf(at.Namespace, at.Group, name); layout != nil {
					out = append(out, g)
				}
			}
		}
	}
	return out, nil
}

// groupOf returns the group of a service and its layout; nil if it has none. If several
// formats accept the name, the service is of the first one: all our instances of a service
// are one set.
func (t *Target) groupOf(namespace, group, service string) (registry.Group, Layout) {
	for _, layout := range t.opts.Layouts {
		if g, ok := layout.GroupOf(namespace, group, service); ok {
			return g, layout
		}
	}
	return registry.Group{}, nil
}

// layoutOf returns the layout of a group; nil if it has none.
func (t *Target) layoutOf(g registry.Group) Layout {
	_, layout := t.groupOf(g.Namespace, g.Group, g.Name)
	return layout
}

// Write implements registry.Target. It publishes all our desired instances in one batch. An
// instance that exceeds a limit is refused and not sent, because servers refuse a batch as a
// whole.
//
// An instance that another connection of this owner publishes is deleted when that
// connection withdraws it or ends. Until then its deletion is a registry.ErrConflict, and
// the remaining change is applied.
func (t *Target) Write(ctx context.Context, change registry.Change) error {
	if err := t.mayWrite(change); err != nil {
		return fmt.Errorf("write %s: %w: %w", change.Group, registry.ErrRefused, err)
	}
	if err := t.write(ctx, change); err != nil {
		return fmt.Errorf("write %s: %w", change.Group, err)
	}
	return nil
}

func (t *Target) write(ctx context.Context, change registry.Change) error {
	refused := t.refusedOf(change)
	change = change.Except(refused)
	layout, hasParts := t.layoutOf(change.Group).(MultiPath)
	if hasParts {
		if err := t.putParts(ctx, layout, change, refused); err != nil {
			return err
		}
		change = change.Except(refused)
	}
	if err := t.publish(ctx, change); err != nil {
		return err
	}
	if hasParts {
		if err := t.deleteParts(ctx, layout, change, refused); err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(change.Delete, func(h registry.Stored) bool { return !h.Live }); i >= 0 {
		return fmt.Errorf("%w: %s is published by another connection of this owner, such as that of a replica",
			registry.ErrConflict, change.Delete[i].Key)
	}
	return refused.Err()
}

// publish publishes the instances of a change, unless they are published already.
func (t *Target) publish(ctx context.Context, change registry.Change) error {
	k, b := keyOf(change.Group), newBatch(change.Want)
	if len(change.Put) == 0 && slices.Equal(b, t.client.publication(k)) {
		return nil
	}
	t.subscriptions.advance(k, written, content{})
	err := t.client.publish(ctx, k, b)
	t.mu.Lock()
	t.wrote[k] = time.Now()
	t.mu.Unlock()
	return err
}

// mayWrite returns an error if the target may not apply any of a change.
func (t *Target) mayWrite(change registry.Change) error {
	if err := t.checkGroup(change.Group); err != nil {
		return err
	}
	for _, h := range change.Replaced() {
		if h.Owner != t.opts.Owner && !h.Leaving { // a leaving entry stays next to ours
			return fmt.Errorf("%s: owned by %q, not by us", h.Key, h.Owner)
		}
	}
	return nil
}

// refusedOf returns the entries of a change that may not be added, or for which a server would
// refuse the whole batch.
func (t *Target) refusedOf(change registry.Change) registry.Refused {
	refused := make(registry.Refused)
	foreign := t.foreign(change.Group)
	for _, w := range change.Put {
		if err := checkInstance(w.New); err != nil {
			refused[w.New.Key] = err
		} else if w.Adds() && foreign != nil {
			refused[w.New.Key] = foreign
		}
	}
	return refused
}

// checkGroup returns an error for a group without a layout, and for a name that no server
// accepts.
func (t *Target) checkGroup(g registry.Group) error {
	if err := metadata.CheckNacosService(g.Namespace, g.Group, g.Name); err != nil {
		return err
	}
	switch found, layout := t.groupOf(g.Namespace, g.Group, g.Name); {
	case layout == nil:
		return errors.New("no configured format writes it")
	case found != g:
		return fmt.Errorf("a service of this name belongs to the format %s", found.Kind)
	}
	return nil
}

func keyOf(g registry.Group) serviceKey { return serviceKey{g.Namespace, g.Group, g.Name} }
