package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Write implements registry.Target.
func (t *Target) Write(ctx context.Context, c registry.Change) error {
	err := cmp.Or(t.check(ctx, c.Group), t.checkOwners(c.Delete))
	if err == nil {
		err = t.write(ctx, c)
		t.answered(err)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", c.Group, err)
	}
	return nil
}

func (t *Target) write(ctx context.Context, c registry.Change) error {
	before, refused, err := t.writable(ctx, c)
	if err != nil {
		return err
	}
	for rest := c.Except(refused); !rest.Empty(); rest = c.Except(refused) {
		more, err := t.put(ctx, before, rest)
		if err != nil {
			return err
		}
		maps.Copy(refused, more)
		if len(more) == 0 || more.Has(serviceentry.SubsetsKey) { // the rule is written last
			break
		}
	}
	if rest := before.readPart(c); len(rest.Put) < len(c.Put) || len(rest.Delete) < len(c.Delete) {
		refused[serviceentry.SubsetsKey] = before.unread
	}
	return refused.Err()
}

// writable returns what of a group is ours, and what of a change is refused because the
// rest is not. It returns an error if the change may not be applied at all.
func (t *Target) writable(ctx context.Context, c registry.Change) (storedGroup, registry.Refused, error) {
	refused := make(registry.Refused)
	s, err := t.get(ctx, c.Group)
	if err != nil {
		return storedGroup{}, nil, err
	}
	if name, there := t.other(serviceentry.ObjectKind, c.Group.Name); there && s.service == nil && len(c.Put) > 0 {
		return storedGroup{}, nil, fmt.Errorf("%w: the ServiceEntry %s has that host and is not ours: delete it, or leave the service out", registry.ErrRefused, name)
	}
	if s.service != nil && !t.may(s.service.Owner()) {
		return storedGroup{}, nil, fmt.Errorf("%w: the ServiceEntry of that name is not ours: delete it, or leave the service out", registry.ErrRefused)
	}
	if s.rule != nil && !t.may(s.rule.Owner()) {
		s.rule = nil
		if slices.ContainsFunc(c.Put, func(w registry.Write) bool { return w.New.Key == serviceentry.SubsetsKey }) {
			refused[serviceentry.SubsetsKey] = fmt.Errorf("%w: the DestinationRule of that name is not ours: delete it, or keep the subsets in it", registry.ErrRefused)
		}
	}
	held := s.entries(t.o.VIPs)
	c = s.readPart(c.Except(refused))
	return s, refused, c.Check(func(key string) (string, bool) { return find(held, key) })
}

// checkOwners returns an error for an entry that we may not delete.
func (t *Target) checkOwners(held []registry.Stored) error {
	for _, h := range held {
		if !t.may(h.Owner) {
			return fmt.Errorf("%w: entry %q is not ours", registry.ErrRefused, h.Key)
		}
	}
	return nil
}

func (t *Target) may(owner string) bool {
	return owner == t.owner || t.o.Accepts != nil && t.o.Accepts(owner)
}

// put applies a change to what is stored. If an object would be too large, it refuses
// new endpoints and does nothing.
func (t *Target) put(ctx context.Context, before storedGroup, c registry.Change) (registry.Refused, error) {
	held := before.entries(t.o.VIPs)
	after := apply(held, c)
	if value, asked := find(after, serviceentry.SubsetsKey); len(after) == 0 || asked && len(after) == 1 { // subsets go with their service
		if _, kept := find(held, serviceentry.SubsetsKey); asked && !kept {
			return registry.Refused{serviceentry.SubsetsKey: fmt.Errorf("%w: subsets without their service: %s", registry.ErrRefused, value)}, nil
		}
		return nil, t.delete(ctx, before)
	}
	next, refused, err := t.next(before, held, after, c)
	if err != nil || len(refused) > 0 {
		return refused, err
	}
	if before.service == nil || !next.Same(*before.service) {
		if err := t.store.Put(ctx, next); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	t.recordAddresses(next)
	t.mu.Unlock()
	if before.unread != nil {
		return nil, nil //nolint:nilerr // write reports it
	}
	return t.putRule(ctx, before.rule, next, after)
}

// next returns the ServiceEntry after a change, or what of the change is refused.
func (t *Target) next(before storedGroup, held, after []registry.Entry, c registry.Change) (serviceentry.Object, registry.Refused, error) {
	if refused := overflow(held, after, c); len(refused) > 0 {
		return serviceentry.Object{}, refused, nil
	}
	next, err := serviceentry.NewObject(c.Group, after, t.address(before.service, c.Group.Name, after))
	if err != nil {
		return next, nil, fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	if before.service != nil {
		next.Metadata.UID, next.Metadata.ResourceVersion = before.service.Metadata.UID, before.service.Metadata.ResourceVersion
	}
	if size := len(metadata.JSON(next)); size > t.o.MaxObject {
		refused, err := tooLarge(c, size, t.o.MaxObject)
		return next, refused, err
	}
	return next, t.lossy(next, after), nil
}

// putRule writes or deletes the rule beside a service, as the entries ask. If it is
// refused, the service is written all the same.
func (t *Target) putRule(ctx context.Context, before *serviceentry.Object, service serviceentry.Object, after []registry.Entry) (registry.Refused, error) {
	value, asked := find(after, serviceentry.SubsetsKey)
	if !asked {
		if before == nil {
			return nil, nil
		}
		return nil, t.store.Delete(ctx, *before)
	}
	if !serviceentry.AsksForSubsets(value) { // it was edited, and is not to be written back yet
		return nil, nil
	}
	next, err := serviceentry.NewRule(service, registry.Entry{Group: service.Group(), Key: serviceentry.SubsetsKey, Value: value})
	switch {
	case err != nil:
		return nil, err
	case before != nil && next.Same(*before):
		return nil, nil
	case before != nil:
		next.Metadata.UID, next.Metadata.ResourceVersion = before.Metadata.UID, before.Metadata.ResourceVersion
	}
	if err = t.store.Put(ctx, next); errors.Is(err, registry.ErrRefused) {
		return registry.Refused{serviceentry.SubsetsKey: err}, nil
	}
	return nil, err
}

func (t *Target) delete(ctx context.Context, s storedGroup) error {
	for _, o := range []*serviceentry.Object{s.rule, s.service} {
		if o == nil {
			continue
		}
		if err := t.store.Delete(ctx, *o); err != nil {
			return err
		}
		if o == s.service {
			t.freeAddresses(o.Metadata.Name)
		}
	}
	return nil
}

// lossy refuses entries that would be read back otherwise: they would be written again
// for ever.
func (t *Target) lossy(o serviceentry.Object, entries []registry.Entry) registry.Refused {
	back := make(map[string]string, len(entries))
	for _, e := range o.Entries(t.o.VIPs) {
		back[e.Key] = e.Value
	}
	refused := make(registry.Refused)
	for _, e := range entries {
		if registry.IsPart(e.Key) {
			continue
		}
		if value, there := back[e.Key]; !there || value != e.Value {
			refused[e.Key] = fmt.Errorf("%w: a ServiceEntry does not keep it unchanged", registry.ErrRefused)
		}
	}
	return refused
}

// maxEndpoints is how many endpoints istio's custom resource definition lets a
// ServiceEntry have.
const maxEndpoints = 4096

// overflow refuses the new endpoints that exceed maxEndpoints. Deletions make no room:
// they are not done while something new is refused.
func overflow(held, after []registry.Entry, c registry.Change) registry.Refused {
	refused := make(registry.Refused)
	if endpoints(after) <= maxEndpoints {
		return refused
	}
	room := maxEndpoints - endpoints(held)
	for _, w := range c.Put {
		if _, there := find(held, w.New.Key); there || !registry.IsEndpoint(w.New.Key) {
			continue
		}
		if room--; room < 0 {
			refused[w.New.Key] = fmt.Errorf("%w: a ServiceEntry may have %d endpoints: divide the service", registry.ErrRefused, maxEndpoints)
		}
	}
	return refused
}

func endpoints(all []registry.Entry) (n int) {
	for _, e := range all {
		if registry.IsEndpoint(e.Key) {
			n++
		}
	}
	return n
}

// tooLarge refuses what makes an object too large: entries that are larger than half of
// the limit or, if there are none, all new and larger ones.
func tooLarge(c registry.Change, size, limit int) (registry.Refused, error) {
	large, grown := make(registry.Refused), make(registry.Refused)
	for _, w := range c.Put {
		if n := len(w.New.Value); n > limit/2 { //nolint:mnd // half
			large[w.New.Key] = fmt.Errorf("%w: %d bytes are too many for one endpoint of a ServiceEntry", registry.ErrRefused, n)
		}
		if registry.IsEndpoint(w.New.Key) && (w.Old == nil || len(w.New.Value) > len(w.Old.Value)) {
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
	return registry.Sorted(out)
}

func find(held []registry.Entry, key string) (value string, there bool) {
	i, there := slices.BinarySearchFunc(held, key, func(e registry.Entry, key string) int { return strings.Compare(e.Key, key) })
	if !there {
		return "", false
	}
	return held[i].Value, true
}
