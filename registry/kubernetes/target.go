// Package kubernetes keeps services of registries as ServiceEntries: as objects of
// a Kubernetes API, or as files of a directory that istiod, Git or Argo CD read.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Store holds objects. Its calls may run at the same time.
type Store interface {
	// List returns the objects of a namespace, whoever owns them.
	List(ctx context.Context, namespace string) ([]serviceentry.Object, error)

	// Get returns an object; nil where there is none.
	Get(ctx context.Context, namespace, name string) (*serviceentry.Object, error)

	// Put stores an object. Where that has a version, it replaces the object of that
	// version; else there must be none. The error is registry.ErrConflict where
	// that is not so, and registry.ErrRefused where a repetition cannot help.
	Put(ctx context.Context, o serviceentry.Object) error

	// Delete deletes an object as it was got, with errors as those of Put.
	Delete(ctx context.Context, o serviceentry.Object) error
}

// A Probe reports whether an object could be stored in a namespace. It stores none.
type Probe interface {
	Try(ctx context.Context, namespace string) error
}

// Options tune a Target.
type Options struct {
	Owner     string                  // the owner's name
	Namespace string                  // of all objects
	VIPs      netip.Prefix            // the range of the codecs that write here; the zero value: none
	Takes     func(owner string) bool // reports whether objects of another owner, by its mark, may be written too; nil: none
	MaxObject int                     // bytes of an object in JSON; 0 is 1 MiB, as etcd takes 1.5 MiB of a request
}

// maxObject leaves room below etcd's limit for what the API server adds.
const maxObject = 1 << 20

// A Target keeps each group as one ServiceEntry. An object that does not carry the
// owner's mark is never written or deleted.
type Target struct {
	o     Options
	owner string // as registry.Held.Owner has it
	store Store

	mu        sync.Mutex
	addresses map[netip.Addr]string // of services: the name of the object that has it
	state     State
}

// NewTarget returns a target over a store.
func NewTarget(store Store, o Options) *Target {
	if o.MaxObject == 0 {
		o.MaxObject = maxObject
	}
	t := &Target{o: o, owner: metadata.OwnerMark(o.Owner), addresses: make(map[netip.Addr]string)}
	t.store = observed{store, t}
	return t
}

// Groups implements registry.Target.
func (t *Target) Groups(ctx context.Context) ([]registry.Group, error) {
	all, err := t.store.List(ctx, t.o.Namespace)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	groups := make([]registry.Group, 0, len(all))
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.addresses)
	for _, o := range all {
		groups = append(groups, o.Group())
		t.note(o)
	}
	slices.SortFunc(groups, registry.Group.Compare)
	return groups, nil
}

// Read implements registry.Target.
func (t *Target) Read(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	if err := t.check(ctx, group); err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	o, err := t.store.Get(ctx, group.Namespace, group.Name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	if o == nil {
		return nil, nil
	}
	owner := o.Owner()
	var held []registry.Held
	for _, e := range o.Entries(t.o.VIPs) {
		e.Group = group
		held = append(held, registry.Held{Entry: e, Owner: owner, Live: true})
	}
	return held, nil
}

// check reports whether a group can be here at all.
func (t *Target) check(ctx context.Context, group registry.Group) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if group.Kind != serviceentry.Kind || group.Namespace != t.o.Namespace {
		return fmt.Errorf("%w: no ServiceEntry of namespace %s", registry.ErrRefused, t.o.Namespace)
	}
	return nil
}

// Write implements registry.Target.
func (t *Target) Write(ctx context.Context, c registry.Change) error {
	if err := t.write(ctx, c); err != nil {
		return fmt.Errorf("write %s: %w", c.Group, err)
	}
	return nil
}

func (t *Target) write(ctx context.Context, c registry.Change) error {
	if err := t.check(ctx, c.Group); err != nil {
		return err
	}
	before, held, err := t.held(ctx, c)
	if err != nil {
		return err
	}
	refused := make(registry.Refused)
	for rest := c; !rest.Empty(); rest = c.Except(refused) {
		more, err := t.put(ctx, before, held, rest)
		if err != nil {
			return err
		}
		if len(more) == 0 {
			break
		}
		maps.Copy(refused, more)
	}
	return refused.Err()
}

// held returns the object of a group and its entries, and an error where a change
// may not be applied to it.
func (t *Target) held(ctx context.Context, c registry.Change) (*serviceentry.Object, []registry.Entry, error) {
	for _, h := range c.Delete {
		if !t.may(h.Owner) {
			return nil, nil, fmt.Errorf("%w: entry %q is not ours", registry.ErrRefused, h.Key)
		}
	}
	o, err := t.store.Get(ctx, c.Group.Namespace, c.Group.Name)
	if err != nil || o == nil {
		return nil, nil, errors.Join(err, conditions(nil, c))
	}
	if !t.may(o.Owner()) {
		return nil, nil, fmt.Errorf("%w: the ServiceEntry of that name is not ours: delete it, or leave the service out", registry.ErrRefused)
	}
	held := o.Entries(t.o.VIPs)
	return o, held, conditions(held, c)
}

// may reports whether what belongs to an owner may be written.
func (t *Target) may(owner string) bool {
	return owner == t.owner || owner != "" && t.o.Takes != nil && t.o.Takes(owner)
}

// put brings an object to where a change wants it. Where it would be too large
// endpoints that are new are refused, and nothing is done.
func (t *Target) put(ctx context.Context, before *serviceentry.Object, held []registry.Entry, c registry.Change) (registry.Refused, error) {
	after := apply(held, c)
	if len(after) == 0 {
		if before == nil {
			return nil, nil
		}
		if err := t.store.Delete(ctx, *before); err != nil {
			return nil, err //nolint:wrapcheck // Write names the group
		}
		t.forget(c.Group.Name)
		return nil, nil
	}
	if refused := surplus(held, after, c); len(refused) > 0 {
		return refused, nil
	}
	next, err := serviceentry.NewObject(c.Group, after, t.address(before, c.Group.Name, after))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	if before != nil {
		next.Metadata.UID, next.Metadata.ResourceVersion = before.Metadata.UID, before.Metadata.ResourceVersion
	}
	if size := len(metadata.JSON(next)); size > t.o.MaxObject {
		return tooLarge(c, size, t.o.MaxObject)
	}
	if refused := t.unlike(next, after); len(refused) > 0 {
		return refused, nil
	}
	if err := t.store.Put(ctx, next); err != nil {
		return nil, err //nolint:wrapcheck // Write names the group
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(next)
	return nil, nil
}

// unlike refuses entries that an object would not be read back as: they would be
// written again for ever.
func (t *Target) unlike(o serviceentry.Object, entries []registry.Entry) registry.Refused {
	back := make(map[string]string, len(entries))
	for _, e := range o.Entries(t.o.VIPs) {
		back[e.Key] = e.Value
	}
	refused := make(registry.Refused)
	for _, e := range entries {
		if value, there := back[e.Key]; !there || value != e.Value {
			refused[e.Key] = fmt.Errorf("%w: a ServiceEntry does not keep it as it is", registry.ErrRefused)
		}
	}
	return refused
}

// maxEndpoints is how many endpoints istio's custom resource definition lets a
// ServiceEntry have.
const maxEndpoints = 4096

// surplus refuses the new endpoints for which an object has no room, if any. What is
// deleted makes none: it stays where something new is refused.
func surplus(held, after []registry.Entry, c registry.Change) registry.Refused {
	refused := make(registry.Refused)
	if len(after)-1 <= maxEndpoints { // beside the head
		return refused
	}
	room := maxEndpoints + 1 - len(held)
	if len(held) == 0 {
		room = maxEndpoints
	}
	for _, w := range c.Put {
		if _, there := find(held, w.New.Key); there || w.New.Key == serviceentry.HeaderKey {
			continue
		}
		if room--; room < 0 {
			refused[w.New.Key] = fmt.Errorf("%w: a ServiceEntry may have %d endpoints: divide the service", registry.ErrRefused, maxEndpoints)
		}
	}
	return refused
}

// tooLarge refuses what makes an object larger than it may be: entries that take
// half of that alone or, where none does, all that are new or become larger.
func tooLarge(c registry.Change, size, limit int) (registry.Refused, error) {
	large, grown := make(registry.Refused), make(registry.Refused)
	for _, w := range c.Put {
		if n := len(w.New.Value); n > limit/2 { //nolint:mnd // half
			large[w.New.Key] = fmt.Errorf("%w: %d bytes are too many for one endpoint of a ServiceEntry", registry.ErrRefused, n)
		}
		if w.New.Key != serviceentry.HeaderKey && (w.Old == nil || len(w.New.Value) > len(w.Old.Value)) {
			grown[w.New.Key] = fmt.Errorf("%w: the ServiceEntry would have %d bytes, and may have %d: divide the service", registry.ErrRefused, size, limit)
		}
	}
	switch {
	case len(large) > 0:
		return large, nil
	case len(grown) > 0:
		return grown, nil
	}
	return nil, fmt.Errorf("%w: the ServiceEntry would have %d bytes, and may have %d", registry.ErrRefused, size, limit)
}

// apply returns what a group holds after a change.
func apply(held []registry.Entry, c registry.Change) []registry.Entry {
	changed := make(map[string]bool, len(c.Put)+len(c.Delete))
	out := make([]registry.Entry, 0, len(held)+len(c.Put))
	for _, w := range c.Put {
		changed[w.New.Key] = true
		out = append(out, w.New)
	}
	for _, h := range c.Delete {
		changed[h.Key] = true
	}
	for _, e := range held {
		if e.Group = c.Group; !changed[e.Key] {
			out = append(out, e)
		}
	}
	return registry.Sorted(slices.Values(out))
}

// conditions reports whether all that a change replaces or deletes is still as it
// was held, or already as it should be.
func conditions(held []registry.Entry, c registry.Change) error {
	for _, w := range c.Put {
		value, there := find(held, w.New.Key)
		switch {
		case there && value == w.New.Value: // a repetition
		case w.Old == nil && there, w.Old != nil && (!there || value != w.Old.Value):
			return fmt.Errorf("entry %q: %w", w.New.Key, registry.ErrConflict)
		}
	}
	for _, h := range c.Delete {
		if value, there := find(held, h.Key); there && value != h.Value {
			return fmt.Errorf("entry %q: %w", h.Key, registry.ErrConflict)
		}
	}
	return nil
}

// find returns the value of an entry of a group.
func find(held []registry.Entry, key string) (value string, there bool) {
	i, there := slices.BinarySearchFunc(held, key, func(e registry.Entry, key string) int { return strings.Compare(e.Key, key) })
	if !there {
		return "", false
	}
	return held[i].Value, true
}

// address returns the address of a service: the one that it has or, for a service
// that is new, the first of its choices that no other one has.
func (t *Target) address(before *serviceentry.Object, host string, entries []registry.Entry) netip.Addr {
	h, err := serviceentry.ParseHeader(entries[0])
	if err != nil || h.VIP == "" || !t.o.VIPs.IsValid() {
		return netip.Addr{}
	}
	if before != nil && len(before.Spec.Addresses) == 1 {
		if have, err := netip.ParseAddr(before.Spec.Addresses[0]); err == nil && before.IsChoice(have, t.o.VIPs) {
			return have
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := 0; ; n++ {
		at := serviceentry.VIP(t.o.VIPs, h.Host, n)
		if !at.IsValid() {
			return at
		}
		if by, taken := t.addresses[at]; !taken || by == host {
			t.addresses[at] = host // at once: others are written at the same time
			return at
		}
	}
}

// note notes the address of an object. The caller holds mu.
func (t *Target) note(o serviceentry.Object) {
	for _, text := range o.Spec.Addresses {
		if at, err := netip.ParseAddr(text); err == nil {
			t.addresses[at] = o.Metadata.Name
		}
	}
}

// forget frees the addresses of an object that is gone.
func (t *Target) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, by := range t.addresses {
		if by == name {
			delete(t.addresses, at)
		}
	}
}
