package mcp

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// Run pushes changes until ctx ends, and returns nil. The first change of an idle target
// is pushed at once; further changes are gathered for debounce. A set with new hosts is
// pushed after they are persisted; other changes are persisted after their push.
func (t *Target) Run(ctx context.Context) error {
	var persisting sync.WaitGroup
	defer persisting.Wait()
	if len(t.o.PersistTo) > 0 {
		persisting.Go(func() { t.persistence.run(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	release := time.NewTicker(time.Minute)
	defer release.Stop()
	var last time.Time
	var confirmed *servedSnapshot
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.wakeup:
		case <-timer.C:
		case now := <-release.C:
			t.releaseAddresses(now)
		}
		confirmed = t.reportConfirmed(confirmed)
		if wait := debounce - time.Since(last); wait > 0 {
			timer.Reset(wait)
			continue
		}
		if t.push(ctx) {
			last = time.Now()
		}
	}
}

// debounce is the least time between two pushes.
const debounce = 50 * time.Millisecond

// reportConfirmed calls Options.Confirmed if the newest confirmed set is not the last one
// reported. It returns the newest.
func (t *Target) reportConfirmed(last *servedSnapshot) *servedSnapshot {
	t.mu.Lock()
	acked := t.newestConfirmed
	t.mu.Unlock()
	if acked != last && t.o.Confirmed != nil {
		t.o.Confirmed(acked.hostsByKey())
	}
	return acked
}

// recordConfirmed records that an istiod confirmed a set, unless a newer one is already
// confirmed. The set may be older than the served one: istiod knows its hosts.
func (t *Target) recordConfirmed(set *servedSnapshot) {
	t.mu.Lock()
	newer := t.newestConfirmed == nil || set.number > t.newestConfirmed.number
	if newer {
		t.newestConfirmed = set
	}
	t.mu.Unlock()
	if newer {
		t.wake()
	}
}

// currentSnapshot returns the served set, which is nil before the first push, and a
// channel that is closed when another set replaces it.
func (t *Target) currentSnapshot() (*servedSnapshot, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pushed, t.pushedReplaced
}

// push replaces the served set if any group changed, after its new hosts are persisted.
// It reports whether the set was replaced.
func (t *Target) push(ctx context.Context) bool {
	next, since, added := t.takePending()
	if next == nil {
		return false
	}
	t.persistence.persistBeforePush(ctx, added)
	t.mu.Lock()
	old := t.pushedReplaced
	t.pushed, t.pushedReplaced = next, make(chan struct{})
	t.mu.Unlock()
	close(old) // wakes the streams, which fetch the set themselves
	t.o.Observe(Observation{Kind: ObservedPush, Count: len(next.resources), Latency: time.Since(since)})
	return true
}

// takePending returns the set to serve next, the time of its first change, and the buckets
// that have a new host. The set is nil if nothing changed.
func (t *Target) takePending() (next *servedSnapshot, since time.Time, added map[int]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete || t.changedSince.IsZero() {
		return nil, time.Time{}, nil
	}
	since, added = t.changedSince, t.newHostBuckets
	t.changedSince, t.newHostBuckets = time.Time{}, make(map[int]bool)
	t.reencodeMoved()
	next = t.served.snapshot()
	if t.pushed != nil {
		if next.version == t.pushed.version {
			return nil, time.Time{}, nil
		}
		next.number = t.pushed.number + 1
	}
	return next, since, added
}

// releaseAddresses frees the addresses whose reservation has expired for other hosts.
func (t *Target) releaseAddresses(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range t.vips.expireReservations(now) {
		t.markChanged(name)
	}
}

// reencodeMoved encodes the groups whose address changed. The caller holds mu.
func (t *Target) reencodeMoved() {
	for name := range t.vips.movedHosts {
		g := t.groups[name]
		if g == nil || g.resource == nil {
			delete(t.vips.movedHosts, name)
			continue
		}
		parsed, err := parse(name, g.entries)
		if err != nil {
			continue // unexpected: the same entries were parsed before
		}
		if r, err := encode(parsed, t.vips.addressOf(name)); err == nil {
			t.served.replace(g, r)
		}
	}
}

// A servedSet collects the resources for the next snapshot. The cost of changing one group
// does not depend on the number of groups. Guarded by Target.mu.
type servedSet struct {
	groups   []*servedGroup // sorted by the name of their resource, unless unsorted
	unsorted bool           // groups has removed groups, or new ones at its end
	sum      uint64         // sum of wireResource.sum
}

// replace replaces the resource of a group. If r is nil, the group is no longer served.
func (s *servedSet) replace(g *servedGroup, r *wireResource) {
	if old := g.resource; old != nil {
		s.sum -= old.sum
	} else if r != nil {
		s.groups = append(s.groups, g)
	}
	if r != nil {
		s.sum += r.sum
	}
	s.unsorted = s.unsorted || (g.resource == nil) != (r == nil)
	g.resource = r
}

// snapshot returns the set as it is now. Its version depends only on its resources, so
// that it is the same on every replica.
func (s *servedSet) snapshot() *servedSnapshot {
	if s.unsorted {
		s.groups = slices.DeleteFunc(s.groups, func(g *servedGroup) bool { return g.resource == nil })
		slices.SortFunc(s.groups, func(a, b *servedGroup) int { return cmp.Compare(a.resource.name, b.resource.name) })
		s.unsorted = false
	}
	out := &servedSnapshot{resources: make([]*wireResource, len(s.groups))}
	for i, g := range s.groups {
		out.resources[i] = g.resource
	}
	out.version = dataplane.SetVersion(s.sum, len(out.resources))
	return out
}

// A servedSnapshot is a set that is served, or was. It is immutable.
type servedSnapshot struct {
	number    int // 0 for the first set of a target, then 1, 2 and so on
	version   string
	resources []*wireResource // sorted by name
}

// changesSince returns the resources that are new or changed since the set o, and the names
// of those that were removed. If o is nil, all resources are new.
func (s *servedSnapshot) changesSince(o *servedSnapshot) (changed []*wireResource, removed []string) {
	var before []*wireResource
	if o != nil {
		before = o.resources
	}
	for _, r := range s.resources {
		for len(before) > 0 && before[0].name < r.name {
			removed = append(removed, before[0].name)
			before = before[1:]
		}
		if len(before) == 0 || before[0].name != r.name {
			changed = append(changed, r)
			continue
		}
		if before[0] != r && before[0].version != r.version { // pointers first: nearly all are equal
			changed = append(changed, r)
		}
		before = before[1:]
	}
	for _, r := range before {
		removed = append(removed, r.name)
	}
	return changed, removed
}

// changesSinceVersions is changesSince for a client that has the given versions, by name.
func (s *servedSnapshot) changesSinceVersions(known map[string]string) (changed []*wireResource, removed []string) {
	there := make(map[string]bool, len(known))
	for _, r := range s.resources {
		if there[r.name] = true; known[r.name] != r.version {
			changed = append(changed, r)
		}
	}
	for name := range known {
		if !there[name] {
			removed = append(removed, name)
		}
	}
	return changed, removed
}

// hostsByKey returns the host address of each service key in the set.
func (s *servedSnapshot) hostsByKey() map[naming.ServiceKey]naming.HostAddress {
	keys := make(map[naming.ServiceKey]naming.HostAddress, len(s.resources))
	for _, r := range s.resources {
		for _, k := range r.keys {
			keys[k] = r.host
		}
	}
	return keys
}
