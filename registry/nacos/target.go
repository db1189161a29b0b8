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

// A Layout says which services of a server hold entries of a format. Codecs
// implement it.
type Layout interface {
	// Scopes returns the namespaces and groups that the format writes to, in
	// Namespace and Group.
	Scopes() []registry.Group

	// GroupOf returns the group that a service is, and false if it is not of the
	// format.
	GroupOf(namespace, group, service string) (registry.Group, bool)
}

// TargetOptions tune a Target.
type TargetOptions struct {
	Owner    string           // metadata.Mark.Owner of what this target may change
	Layouts  []Layout         // of all formats that are written
	Signer   *metadata.Signer // nil: marks are neither signed nor verified
	ReadBack time.Duration    // how long a server's reads lag behind its writes; 0 is 1 s
}

// readBack is how long a server's reads lag behind its writes, if no option says.
const readBack = time.Second

// A Target writes to Nacos. What it writes exists as long as its client's
// connection. It implements registry.Target, registry.Watcher and registry.Recorder.
type Target struct {
	*recorder

	client        *Client
	opts          TargetOptions
	subscriptions *subscriptions

	mu        sync.Mutex
	wrote     map[serviceKey]time.Time // when a service was written, for reads that have to wait
	foreignIn map[registry.Group]error // services that hold instances of another format
}

// NewTarget returns a target that writes through a client.
func NewTarget(c *Client, o TargetOptions) (*Target, error) {
	if len(o.Owner) != metadata.OwnerLen {
		return nil, fmt.Errorf("owner %q is no fingerprint of %d bytes", o.Owner, metadata.OwnerLen)
	}
	if len(o.Layouts) == 0 {
		return nil, errors.New("a Nacos target requires a format")
	}
	o.ReadBack = cmp.Or(o.ReadBack, readBack)
	return &Target{
		recorder: &recorder{c, o.Owner, o.ReadBack}, client: c, opts: o, subscriptions: newSubscriptions(), wrote: make(map[serviceKey]time.Time), foreignIn: make(map[registry.Group]error),
	}, nil
}

// Capabilities implements registry.Target. Lost is ready once the connection was
// replaced: what was published on the earlier one has ended with it. An instance exists
// as long as any connection publishes it, so that the target is Shared. A server that
// restarts may confirm a batch and lose it, so that groups are read back.
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

// groupOf returns the group that a service is, and its layout, nil if it has none.
// If several formats may have a service of that name, it is of the first: all that
// we publish of a service is one set.
func (t *Target) groupOf(namespace, group, service string) (registry.Group, Layout) {
	for _, layout := range t.opts.Layouts {
		if g, ok := layout.GroupOf(namespace, group, service); ok {
			return g, layout
		}
	}
	return registry.Group{}, nil
}

// layoutOf returns the layout of a group that is known.
func (t *Target) layoutOf(g registry.Group) Layout {
	_, layout := t.groupOf(g.Namespace, g.Group, g.Name)
	return layout
}

// Write implements registry.Target: it publishes all desired instances of ours
// in one batch. An instance beyond a limit is refused and not sent, because
// servers refuse a batch as a whole. What another connection of ours publishes
// goes once that one withdraws it or ends. Until then its deletion is a
// registry.ErrConflict, while the rest of the change is done.
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
	refused := t.refuses(change)
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
		return fmt.Errorf("%w: %s is published by another connection of this owner, such as a replica's, and goes with that",
			registry.ErrConflict, change.Delete[i].Key)
	}
	return refused.Err()
}

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

func (t *Target) mayWrite(change registry.Change) error {
	if err := t.known(change.Group); err != nil {
		return err
	}
	for _, h := range change.Replaced() {
		if h.Owner != t.opts.Owner && !h.Leaving { // which stays beside ours
			return fmt.Errorf("%s is not ours to replace or delete", h.Key)
		}
	}
	return nil
}

// refuses returns what of a change may not be added, or would make a server
// refuse the whole batch.
func (t *Target) refuses(change registry.Change) registry.Refused {
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

// known returns an error for a group of no layout, and for a name that no server
// accepts.
func (t *Target) known(g registry.Group) error {
	if err := metadata.CheckNacosService(g.Namespace, g.Group, g.Name); err != nil {
		return err
	}
	switch found, layout := t.groupOf(g.Namespace, g.Group, g.Name); {
	case layout == nil:
		return errors.New("it is of no format that is written here")
	case found != g:
		return fmt.Errorf("a service of that name is of the format %s here", found.Kind)
	}
	return nil
}

func keyOf(g registry.Group) serviceKey { return serviceKey{g.Namespace, g.Group, g.Name} }
