package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Options tune a Target.
type Options struct {
	Owner string       // the owner of every entry, as in registry.Stored
	VIPs  netip.Prefix // the virtual addresses that codecs request; the zero value: none

	// PersistTo has the stores that persist what is served for the next process, those
	// with Has first. If empty, nothing is persisted.
	PersistTo []PersistentStore

	// Predecessor is the target that this one replaces, or nil. If it was ready, its
	// entries are used instead of the persisted ones. Its Run must have returned.
	Predecessor *Target

	// Confirmed, if set, is called with the host addresses of all service keys in a set
	// once an istiod confirmed that set.
	Confirmed func(map[naming.ServiceKey]naming.HostAddress)

	Observe func(Observation) // may be nil
}

// A Target is the set of ServiceEntries that a Server serves. It is safe for use by many
// goroutines.
type Target struct {
	// Immutable, except that persistence.load clears o.Predecessor. wakeup wakes Run.
	o           Options
	persistence *persistence
	wakeup      chan struct{}

	// Guarded by mu: what the bridge wrote.
	mu              sync.Mutex
	groups          map[registry.Group]*servedGroup
	served          servedSet
	vips            vipAllocator
	sourcesComplete bool
	changedSince    time.Time    // time of the first change after the last push; zero if none
	dirtyBuckets    map[int]bool // buckets that changed after they were persisted
	newHostBuckets  map[int]bool // buckets that got a host after the last push

	// Guarded by mu: what is served.
	pushed          *servedSnapshot // nil before the first push
	pushedReplaced  chan struct{}   // closed when another set replaces pushed
	newestConfirmed *servedSnapshot // newest set that an istiod confirmed; nil if none
}

// NewTarget returns a target that answers nothing before SourcesComplete.
func NewTarget(o Options) *Target {
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	t := &Target{
		o: o, groups: make(map[registry.Group]*servedGroup), vips: newVIPAllocator(o.VIPs),
		pushedReplaced: make(chan struct{}), wakeup: make(chan struct{}, 1),
		dirtyBuckets: make(map[int]bool), newHostBuckets: make(map[int]bool),
	}
	t.persistence = newPersistence(t, o.PersistTo)
	return t
}

// Capabilities implements registry.Target.
func (t *Target) Capabilities() registry.Capabilities {
	return registry.Capabilities{SourcesComplete: t.SourcesComplete}
}

// Groups implements registry.Target. The first call loads what the last process served.
func (t *Target) Groups(ctx context.Context) ([]registry.Group, error) {
	if err := t.persistence.load(ctx); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.groups), registry.Group.Compare), nil
}

// Read implements registry.Target.
func (t *Target) Read(_ context.Context, name registry.Group) ([]registry.Stored, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[name]
	if g == nil {
		return nil, nil
	}
	var out []registry.Stored
	for _, e := range g.entries {
		out = append(out, registry.Stored{Entry: e.in(name), Owner: t.o.Owner, Live: true})
	}
	return out, nil
}

// Write implements registry.Target. It does not wait until the change is pushed.
func (t *Target) Write(ctx context.Context, c registry.Change) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write %s: %w", c.Group, err)
	}
	err := t.apply(c)
	if refused, some := errors.AsType[registry.Refused](err); some {
		if err := t.apply(c.Except(refused)); err != nil {
			return err
		}
	}
	return err
}

// apply applies the whole change or, on an error, nothing.
func (t *Target) apply(c registry.Change) error {
	entries, err := t.entriesAfter(c)
	if err != nil {
		return err
	}
	if err := t.setEntries(c.Group, entries); err != nil {
		return fmt.Errorf("write %s: %w: %w", c.Group, registry.ErrRefused, err)
	}
	return nil
}

// entriesAfter returns the entries of the group after the change, sorted by key. It fails
// if the change expects other entries than the group has.
func (t *Target) entriesAfter(c registry.Change) ([]entry, error) {
	var before []entry // immutable
	t.mu.Lock()
	if g := t.groups[c.Group]; g != nil {
		before = g.entries
	}
	t.mu.Unlock()
	if err := c.Check(func(key string) (string, bool) {
		byKey := func(e entry, key string) int { return strings.Compare(e.Key, key) }
		at, there := slices.BinarySearchFunc(before, key, byKey)
		if !there {
			return "", false
		}
		return before[at].Value, true
	}); err != nil {
		return nil, fmt.Errorf("write %s: %w", c.Group, err)
	}
	changed := make(map[string]bool, len(c.Put)+len(c.Delete))
	entries := make([]entry, 0, len(before)+len(c.Put))
	for _, w := range c.Put {
		changed[w.New.Key] = true
		entries = append(entries, entry{w.New.Key, w.New.Value})
	}
	for _, h := range c.Delete {
		changed[h.Key] = true
	}
	for _, e := range before {
		if !changed[e.Key] {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, entry.compare)
	return entries, nil
}

// SourcesComplete tells the target that its entries are complete, so that istiods are
// answered from now on. Further calls have no effect.
func (t *Target) SourcesComplete() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete {
		t.sourcesComplete = true
		t.changedSince = time.Now()
		t.wake()
	}
}

// wake makes Run look for changes.
func (t *Target) wake() {
	select {
	case t.wakeup <- struct{}{}:
	default:
	}
}

// ErrSourcesIncomplete is the error of Ready before SourcesComplete.
var ErrSourcesIncomplete = errors.New("waits until every source has reported everything once")

// Ready returns nil once istiods are answered.
func (t *Target) Ready() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete {
		return ErrSourcesIncomplete
	}
	return nil
}

// Observation is an event of a Target or a Server, for metrics.
type Observation struct {
	Kind    ObservationKind
	Count   int           // of ObservedPush: resources in the set
	Latency time.Duration // of ObservedPush: time since the first change in the set
	Refused Refusal       // of ObservedRefused
	Err     error         // of ObservedPersistence and ObservedRefused
}

// ObservationKind distinguishes observations.
type ObservationKind string

// The kinds of observations.
const (
	ObservedPush        ObservationKind = "push"
	ObservedNack        ObservationKind = "nack"
	ObservedPersistence ObservationKind = "state"      // what is served could not be persisted or loaded
	ObservedNoAddress   ObservationKind = "no-address" // no virtual address is left for a host
	ObservedRefused     ObservationKind = "refused"    // a client was refused
	ObservedOpen        ObservationKind = "open"       // a stream was opened
	ObservedClosed      ObservationKind = "closed"     // a stream was closed
	ObservedREST        ObservationKind = "rest"       // a data plane sent a REST request
)

// A servedGroup is a group of the registry, which is served as one ServiceEntry. Guarded by
// Target.mu; entries and resource are replaced, never changed.
type servedGroup struct {
	bucket   int
	entries  []entry       // sorted by key
	resource *wireResource // of the entries; nil before there are any
}

// An entry is a registry.Entry without its group.
type entry struct {
	Key   string `json:"k"`
	Value string `json:"v"`
}

func (e entry) compare(o entry) int { return strings.Compare(e.Key, o.Key) }

func (e entry) in(name registry.Group) registry.Entry {
	return registry.Entry{Group: name, Key: e.Key, Value: e.Value}
}

// setEntries replaces the entries of a group by others, which are sorted by key. If they
// are invalid, it returns an error and the group keeps its entries.
//
// Parsing and encoding are most of the work, and are done without holding mu: by the contract
// of registry.Target, no other call changes the same group meanwhile.
func (t *Target) setEntries(name registry.Group, entries []entry) error {
	if len(entries) == 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.dropGroup(name)
		return nil
	}
	parsed, err := parse(name, entries)
	if err != nil {
		return err
	}
	r, err := encode(parsed, t.assignAddress(name, parsed))
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groupOrNew(name)
	switch {
	case err == nil:
		if g.resource == nil {
			t.newHostBuckets[g.bucket] = true
		}
		g.entries = entries
		t.served.replace(g, r)
		t.markChanged(name)
	case g.resource == nil:
		t.vips.removeHost(name) // at once, because its address was never served
		t.dropGroup(name)
	}
	return err
}

// groupOrNew returns a group, and creates it if it does not exist. The caller holds mu.
func (t *Target) groupOrNew(name registry.Group) *servedGroup {
	g := t.groups[name]
	if g == nil {
		g = &servedGroup{bucket: bucketOf(name)}
		t.groups[name] = g
	}
	return g
}

// dropGroup deletes a group and reserves its address. The caller holds mu.
func (t *Target) dropGroup(name registry.Group) {
	if g := t.groups[name]; g != nil {
		t.served.replace(g, nil)
		t.vips.reserveAddresses(name, time.Now())
		delete(t.groups, name)
		t.markChanged(name)
	}
}

// markChanged marks a group to be pushed and persisted. The caller holds mu.
func (t *Target) markChanged(name registry.Group) {
	t.dirtyBuckets[bucketOf(name)] = true
	if t.changedSince.IsZero() {
		t.changedSince = time.Now()
	}
	t.wake()
}

// assignAddress returns the virtual address of a group. It is invalid if the group requests
// none, or if none is left.
func (t *Target) assignAddress(name registry.Group, r parsedGroup) netip.Addr {
	if r.VIP == "" || !t.o.VIPs.IsValid() {
		return netip.Addr{}
	}
	t.mu.Lock()
	t.vips.addHost(name)
	vip := t.vips.addressOf(name)
	t.mu.Unlock()
	if !vip.IsValid() {
		t.o.Observe(Observation{Kind: ObservedNoAddress})
	}
	return vip
}
