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

// Run pushes changes until ctx ends: the first of an idle target at once, those
// after it gathered for debounce, and new hosts once they are kept. It keeps the
// other changes beside that, and returns nil.
func (t *Target) Run(ctx context.Context) error {
	var keeping sync.WaitGroup
	defer keeping.Wait()
	if len(t.o.PersistTo) > 0 {
		keeping.Go(func() { t.persistence.run(ctx) })
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
		case <-t.kick:
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

// debounce is how long changes after a first one are gathered.
const debounce = 50 * time.Millisecond

// reportConfirmed reports the set that an istiod confirmed, unless it is the last, and
// returns it.
func (t *Target) reportConfirmed(last *servedSnapshot) *servedSnapshot {
	t.mu.Lock()
	acked := t.acked
	t.mu.Unlock()
	if acked != last && t.o.Confirmed != nil {
		t.o.Confirmed(acked.keys())
	}
	return acked
}

// confirm records that an istiod confirmed a set. It may be an older one than is
// served by now: its hosts are known there anyway.
func (t *Target) confirm(set *servedSnapshot) {
	t.mu.Lock()
	newer := t.acked == nil || set.number > t.acked.number
	if newer {
		t.acked = set
	}
	t.mu.Unlock()
	if newer {
		t.wake()
	}
}

// current returns the served set, nil before the first, and a channel that is
// closed once there is another.
func (t *Target) current() (*servedSnapshot, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pushed, t.next
}

// push makes what is held the served set, once the records have its new hosts. It
// reports whether anything changed.
func (t *Target) push(ctx context.Context) bool {
	next, since, added := t.due()
	if next == nil {
		return false
	}
	t.persistence.persistBeforePush(ctx, added)
	t.mu.Lock()
	old := t.next
	t.pushed, t.next = next, make(chan struct{})
	t.mu.Unlock()
	close(old) // the streams look for the set themselves
	t.o.Observe(Observation{Kind: ObservedPush, Count: len(next.content), Latency: time.Since(since)})
	return true
}

// due returns the set that is to be served, since when, and the buckets in which a
// host is new; nil if nothing changed.
func (t *Target) due() (next *servedSnapshot, since time.Time, added map[int]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete || t.changed.IsZero() {
		return nil, time.Time{}, nil
	}
	since, added = t.changed, t.added
	t.changed, t.added = time.Time{}, make(map[int]bool)
	t.readdress()
	next = t.served.snapshot()
	if t.pushed != nil {
		if next.version == t.pushed.version {
			return nil, time.Time{}, nil
		}
		next.number = t.pushed.number + 1
	}
	return next, since, added
}

// releaseAddresses lets others have the addresses that were reserved for long
// enough.
func (t *Target) releaseAddresses(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range t.vips.expire(now) {
		t.touch(name)
	}
}

// readdress encodes the groups anew whose address changed. The caller holds mu.
func (t *Target) readdress() {
	for name := range t.vips.moved {
		g := t.groups[name]
		if g == nil || g.resource == nil {
			delete(t.vips.moved, name)
			continue
		}
		parsed, err := parse(name, g.entries)
		if err != nil {
			continue // it was read before
		}
		if r, err := encode(parsed, t.vips.of(name)); err == nil {
			t.served.replace(g, r)
		}
	}
}

// A servedSet is what is to be served. A change of one group costs little however many
// there are.
type servedSet struct {
	groups   []*servedGroup // by the name of their resource, unless unsorted
	unsorted bool           // some are gone, or new and at the end
	sum      uint64         // of the sums of all resources
}

// replace replaces the resource of a group; nil: none is served.
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

// snapshot returns the set as of now. Its version is the sum of the hashes of its
// resources: the same on every replica, and different for similar sets.
func (s *servedSet) snapshot() *servedSnapshot {
	if s.unsorted {
		s.groups = slices.DeleteFunc(s.groups, func(g *servedGroup) bool { return g.resource == nil })
		slices.SortFunc(s.groups, func(a, b *servedGroup) int { return cmp.Compare(a.resource.name, b.resource.name) })
		s.unsorted = false
	}
	out := &servedSnapshot{content: make([]*wireResource, len(s.groups))}
	for i, g := range s.groups {
		out.content[i] = g.resource
	}
	out.version = dataplane.SetVersion(s.sum, len(out.content))
	return out
}

// A servedSnapshot is a served set. It is never written again.
type servedSnapshot struct {
	number  int // grows with each
	version string
	content []*wireResource // by name
}

// since returns the resources that are new or changed since another set, and the names
// of those that are gone; nil: a set without any.
func (s *servedSnapshot) since(o *servedSnapshot) (changed []*wireResource, removed []string) {
	var before []*wireResource
	if o != nil {
		before = o.content
	}
	for _, r := range s.content {
		for len(before) > 0 && before[0].name < r.name {
			removed = append(removed, before[0].name)
			before = before[1:]
		}
		if len(before) == 0 || before[0].name != r.name {
			changed = append(changed, r)
			continue
		}
		if before[0] != r && before[0].version != r.version { // nearly all are the same
			changed = append(changed, r)
		}
		before = before[1:]
	}
	for _, r := range before {
		removed = append(removed, r.name)
	}
	return changed, removed
}

// sinceKnown is since for the versions that a client knows, by name.
func (s *servedSnapshot) sinceKnown(known map[string]string) (changed []*wireResource, removed []string) {
	there := make(map[string]bool, len(known))
	for _, r := range s.content {
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

func (s *servedSnapshot) keys() map[naming.ServiceKey]naming.HostAddress {
	keys := make(map[naming.ServiceKey]naming.HostAddress, len(s.content))
	for _, r := range s.content {
		for _, k := range r.keys {
			keys[k] = r.host
		}
	}
	return keys
}
