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
	err := cmp.Or(t.checkGroup(ctx, c.Group), t.checkOwners(c.Delete))
	if err == nil {
		err = t.write(ctx, c)
		t.recordCall(err)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", c.Group, err)
	}
	return nil
}

// write applies a change without the keys that are refused, and returns the refusals.
func (t *Target) write(ctx context.Context, c registry.Change) error {
	before, refused, err := t.readForWrite(ctx, c)
	if err != nil {
		return err
	}
	for accepted := c.Except(refused); !accepted.Empty(); accepted = c.Except(refused) {
		more, err := t.putGroup(ctx, before, accepted)
		if err != nil {
			return err
		}
		maps.Copy(refused, more)
		if len(more) == 0 || more.Has(serviceentry.SubsetsKey) { // the rule is written last, so all else is done
			break
		}
	}
	if readable := before.withoutUnreadRule(c); len(readable.Put) < len(c.Put) || len(readable.Delete) < len(c.Delete) {
		refused[serviceentry.SubsetsKey] = before.ruleError
	}
	return refused.Err()
}

// readForWrite reads the objects of a group that may be written. It also returns the keys of
// the change that are refused because another owner has the object. It fails if the whole
// change is refused or in conflict.
func (t *Target) readForWrite(ctx context.Context, c registry.Change) (storedGroup, registry.Refused, error) {
	refused := make(registry.Refused)
	s, err := t.readGroup(ctx, c.Group)
	if err != nil {
		return storedGroup{}, nil, err
	}
	if name, there := t.otherName(serviceentry.ObjectKind, c.Group.Name); there && s.service == nil && len(c.Put) > 0 {
		const format = "%w: the ServiceEntry %s has that host and is not ours: delete it, or leave the service out"
		return storedGroup{}, nil, fmt.Errorf(format, registry.ErrRefused, name)
	}
	if s.service != nil && !t.mayWrite(s.service.Owner()) {
		const format = "%w: the ServiceEntry of that name is not ours: delete it, or leave the service out"
		return storedGroup{}, nil, fmt.Errorf(format, registry.ErrRefused)
	}
	if s.rule != nil && !t.mayWrite(s.rule.Owner()) {
		s.rule = nil
		if slices.ContainsFunc(c.Put, func(w registry.Write) bool { return w.New.Key == serviceentry.SubsetsKey }) {
			const format = "%w: the DestinationRule of that name is not ours: delete it, or maintain its subsets yourself"
			refused[serviceentry.SubsetsKey] = fmt.Errorf(format, registry.ErrRefused)
		}
	}
	stored := s.entries(t.o.VIPs)
	c = s.withoutUnreadRule(c.Except(refused))
	return s, refused, c.Check(func(key string) (string, bool) { return findValue(stored, key) })
}

// checkOwners returns an error if an entry may not be deleted, because another owner has it.
func (t *Target) checkOwners(stored []registry.Stored) error {
	for _, h := range stored {
		if !t.mayWrite(h.Owner) {
			return fmt.Errorf("%w: entry %q is not ours", registry.ErrRefused, h.Key)
		}
	}
	return nil
}

func (t *Target) mayWrite(owner string) bool {
	return owner == t.owner || t.o.Accepts != nil && t.o.Accepts(owner)
}

// putGroup applies a change to the stored objects. If the ServiceEntry would be too large, it
// refuses new endpoints and applies nothing. If the rule is refused, the rest is applied.
func (t *Target) putGroup(ctx context.Context, before storedGroup, c registry.Change) (registry.Refused, error) {
	stored := before.entries(t.o.VIPs)
	after := entriesAfter(stored, c)
	subsets, hasSubsets := findValue(after, serviceentry.SubsetsKey)
	if len(after) == 0 || hasSubsets && len(after) == 1 { // subsets are deleted with their service
		if _, hadSubsets := findValue(stored, serviceentry.SubsetsKey); hasSubsets && !hadSubsets {
			err := fmt.Errorf("%w: subsets without their service: %s", registry.ErrRefused, subsets)
			return registry.Refused{serviceentry.SubsetsKey: err}, nil
		}
		return nil, t.deleteGroup(ctx, before)
	}
	next, refused, err := t.nextServiceEntry(before, stored, after, c)
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
	if before.ruleError != nil {
		return nil, nil //nolint:nilerr // write reports it
	}
	return t.putRule(ctx, before.rule, next, after)
}

// nextServiceEntry returns the ServiceEntry after a change, or the keys of the change that
// are refused.
func (t *Target) nextServiceEntry(
	before storedGroup, stored, after []registry.Entry, c registry.Change,
) (serviceentry.Object, registry.Refused, error) {
	if refused := refuseOverflow(stored, after, c); len(refused) > 0 {
		return serviceentry.Object{}, refused, nil
	}
	next, err := serviceentry.NewObject(c.Group, after, t.assignAddress(before.service, c.Group.Name, after))
	if err != nil {
		return next, nil, fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	if before.service != nil {
		next.Metadata.UID = before.service.Metadata.UID
		next.Metadata.ResourceVersion = before.service.Metadata.ResourceVersion
	}
	if size := len(metadata.JSON(next)); size > t.o.MaxObject {
		refused, err := refuseTooLarge(c, size, t.o.MaxObject)
		return next, refused, err
	}
	return next, t.refuseLossy(next, after), nil
}

// putRule writes or deletes the rule of a service, as the entries request. A refusal of the
// store concerns only the key of the rule.
func (t *Target) putRule(
	ctx context.Context, before *serviceentry.Object, service serviceentry.Object, after []registry.Entry,
) (registry.Refused, error) {
	value, requested := findValue(after, serviceentry.SubsetsKey)
	if !requested {
		if before == nil {
			return nil, nil
		}
		return nil, t.store.Delete(ctx, *before)
	}
	if !serviceentry.AsksForSubsets(value) { // another writer edited the rule, and the bridge has not decided yet
		return nil, nil
	}
	e := registry.Entry{Group: service.Group(), Key: serviceentry.SubsetsKey, Value: value}
	next, err := serviceentry.NewRule(service, e)
	switch {
	case err != nil:
		return nil, err
	case before != nil && next.Same(*before):
		return nil, nil
	case before != nil:
		next.Metadata.UID = before.Metadata.UID
		next.Metadata.ResourceVersion = before.Metadata.ResourceVersion
	}
	if err = t.store.Put(ctx, next); errors.Is(err, registry.ErrRefused) {
		return registry.Refused{serviceentry.SubsetsKey: err}, nil
	}
	return nil, err
}

// deleteGroup deletes the objects of a group, the rule first.
func (t *Target) deleteGroup(ctx context.Context, s storedGroup) error {
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

// refuseLossy refuses entries that would be read back with another value, because the bridge
// would write them again and again.
func (t *Target) refuseLossy(o serviceentry.Object, entries []registry.Entry) registry.Refused {
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
			refused[e.Key] = fmt.Errorf("%w: a ServiceEntry cannot store the entry unchanged", registry.ErrRefused)
		}
	}
	return refused
}

// maxEndpoints is the maximum of endpoints in istio's custom resource definition.
const maxEndpoints = 4096

// refuseOverflow refuses the new endpoints that exceed maxEndpoints. Deletions of the same
// change make no room, because they are not applied while a new endpoint is refused.
func refuseOverflow(stored, after []registry.Entry, c registry.Change) registry.Refused {
	refused := make(registry.Refused)
	if countEndpoints(after) <= maxEndpoints {
		return refused
	}
	room := maxEndpoints - countEndpoints(stored)
	for _, w := range c.Put {
		if _, there := findValue(stored, w.New.Key); there || !registry.IsEndpoint(w.New.Key) {
			continue
		}
		if room--; room < 0 {
			refused[w.New.Key] = fmt.Errorf("%w: a ServiceEntry may have at most %d endpoints: split the service",
				registry.ErrRefused, maxEndpoints)
		}
	}
	return refused
}

// countEndpoints returns how many entries are endpoints.
func countEndpoints(all []registry.Entry) (n int) {
	for _, e := range all {
		if registry.IsEndpoint(e.Key) {
			n++
		}
	}
	return n
}

// refuseTooLarge refuses the entries that make an object too large: those larger than half
// of the limit. If there are none, it refuses all new and all grown endpoints. It fails if
// there are none of these either.
func refuseTooLarge(c registry.Change, size, limit int) (registry.Refused, error) {
	large, grown := make(registry.Refused), make(registry.Refused)
	for _, w := range c.Put {
		if n := len(w.New.Value); n > limit/2 { //nolint:mnd // half
			large[w.New.Key] = fmt.Errorf("%w: an endpoint of %d bytes is too large for a ServiceEntry", registry.ErrRefused, n)
		}
		if registry.IsEndpoint(w.New.Key) && (w.Old == nil || len(w.New.Value) > len(w.Old.Value)) {
			grown[w.New.Key] = fmt.Errorf("%w: the ServiceEntry would have %d bytes, at most %d: split the service",
				registry.ErrRefused, size, limit)
		}
	}
	switch {
	case len(large) > 0:
		return large, nil
	case len(grown) > 0:
		return grown, nil
	}
	return nil, fmt.Errorf("%w: the ServiceEntry would have %d bytes, at most %d", registry.ErrRefused, size, limit)
}

// entriesAfter returns the entries of a group after a change, sorted by key.
func entriesAfter(stored []registry.Entry, c registry.Change) []registry.Entry {
	changed := make(map[string]bool, len(c.Put)+len(c.Delete))
	out := make([]registry.Entry, 0, len(stored)+len(c.Put))
	for _, w := range c.Put {
		changed[w.New.Key] = true
		out = append(out, w.New)
	}
	for _, h := range c.Delete {
		changed[h.Key] = true
	}
	for _, e := range stored {
		if e.Group = c.Group; !changed[e.Key] {
			out = append(out, e)
		}
	}
	return registry.Sorted(out)
}

// findValue returns the value of a key among entries that are sorted by key.
func findValue(stored []registry.Entry, key string) (value string, there bool) {
	byKey := func(e registry.Entry, key string) int { return strings.Compare(e.Key, key) }
	i, there := slices.BinarySearchFunc(stored, key, byKey)
	if !there {
		return "", false
	}
	return stored[i].Value, true
}
