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
	Owner string       // of everything here, as in registry.Stored
	VIPs  netip.Prefix // the range of the codecs that write here; the zero value: none

	// Keep is where what is served is kept for the next process, those with Has
	// first; empty: it is not kept.
	PersistTo []PersistentStore

	// Predecessor is the target that this one replaces, once it has ended. What it
	// held counts instead of what was kept; nil: there was none.
	Predecessor *Target

	// Confirmed is called with the keys of a set and their host addresses once an
	// istiod confirmed it; may be nil.
	Confirmed func(map[naming.ServiceKey]naming.HostAddress)

	Observe func(Observation) // may be nil
}

// A Target holds the ServiceEntries that are served. It is safe for use by many
// goroutines.
type Target struct {
	o           Options
	persistence *persistence

	mu              sync.Mutex
	groups          map[registry.Group]*servedGroup
	served          servedSet
	vips            vipAllocator
	sourcesComplete bool
	pushed          *servedSnapshot // the served set; nil before the first
	next            chan struct{}   // closed once there is another
	changed         time.Time       // since when pushed is not the newest; zero: it is
	acked           *servedSnapshot // the newest that an istiod confirmed; nil: none
	kick            chan struct{}
	dirty           map[int]bool // buckets that changed since they were kept
	added           map[int]bool // buckets with a new host since the last push
}

// NewTarget returns a target that answers nothing before SourcesComplete.
func NewTarget(o Options) *Target {
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	t := &Target{
		o: o, groups: make(map[registry.Group]*servedGroup), vips: newVIPAllocator(o.VIPs),
		next: make(chan struct{}), kick: make(chan struct{}, 1), dirty: make(map[int]bool), added: make(map[int]bool),
	}
	t.persistence = newPersistence(t, o.PersistTo)
	return t
}

// Capabilities implements registry.Target.
func (t *Target) Capabilities() registry.Capabilities {
	return registry.Capabilities{SourcesComplete: t.SourcesComplete}
}

// Groups implements registry.Target. The first call reads what was served before.
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

// Write implements registry.Target. The change is pushed soon.
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

// apply applies all of a change or nothing.
func (t *Target) apply(c registry.Change) error {
	entries, err := t.with(c)
	if err != nil {
		return err
	}
	if err := t.set(c.Group, entries); err != nil {
		return fmt.Errorf("write %s: %w: %w", c.Group, registry.ErrRefused, err)
	}
	return nil
}

// with returns the entries of a group after a change, sorted by key.
func (t *Target) with(c registry.Change) ([]entry, error) {
	var held []entry // which are never written again
	t.mu.Lock()
	if g := t.groups[c.Group]; g != nil {
		held = g.entries
	}
	t.mu.Unlock()
	if err := c.Check(func(key string) (string, bool) {
		at, there := slices.BinarySearchFunc(held, key, func(e entry, key string) int { return strings.Compare(e.Key, key) })
		if !there {
			return "", false
		}
		return held[at].Value, true
	}); err != nil {
		return nil, fmt.Errorf("write %s: %w", c.Group, err)
	}
	changed := make(map[string]bool, len(c.Put)+len(c.Delete))
	entries := make([]entry, 0, len(held)+len(c.Put))
	for _, w := range c.Put {
		changed[w.New.Key] = true
		entries = append(entries, entry{w.New.Key, w.New.Value})
	}
	for _, h := range c.Delete {
		changed[h.Key] = true
	}
	for _, e := range held {
		if !changed[e.Key] {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, entry.compare)
	return entries, nil
}

// SourcesComplete has the target answer from now on, because what it holds is
// complete. It may be called again.
func (t *Target) SourcesComplete() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete {
		t.sourcesComplete = true
		t.changed = time.Now()
		t.wake()
	}
}

func (t *Target) wake() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// ErrSourcesIncomplete is why nothing is served yet.
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
	Count   int           // of a push: resources
	Latency time.Duration // of a push: since the first change in it
	Refused Refusal       // of a client that was refused
	Err     error
}

// ObservationKind distinguishes observations.
type ObservationKind string

// The kinds of observations.
const (
	ObservedPush        ObservationKind = "push"
	ObservedNack        ObservationKind = "nack"
	ObservedPersistence ObservationKind = "state"      // a record of what is served could not be read or written
	ObservedNoAddress   ObservationKind = "no-address" // other hosts have all choices of a host
	ObservedRefused     ObservationKind = "refused"    // a client
	ObservedOpen        ObservationKind = "open"       // a stream
	ObservedClosed      ObservationKind = "closed"
	ObservedREST        ObservationKind = "rest" // a request of a data plane
)

// A servedGroup is one ServiceEntry.
type servedGroup struct {
	bucket   int
	entries  []entry       // sorted by key
	resource *wireResource // of the entries; nil if there are none
}

type entry struct {
	Key   string `json:"k"`
	Value string `json:"v"`
}

func (e entry) compare(o entry) int { return strings.Compare(e.Key, o.Key) }

func (e entry) in(name registry.Group) registry.Entry {
	return registry.Entry{Group: name, Key: e.Key, Value: e.Value}
}

// set replaces the entries of a group by others, which are sorted by key. If they
// are invalid, the group is kept. They are parsed and encoded, which is most of
// the work, without the lock: registry.Target lets nobody else change the group
// meanwhile.
func (t *Target) set(name registry.Group, entries []entry) error {
	if len(entries) == 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.drop(name)
		return nil
	}
	parsed, err := parse(name, entries)
	if err != nil {
		return err
	}
	r, err := encode(parsed, t.address(name, parsed))
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.group(name)
	switch {
	case err == nil:
		if g.resource == nil {
			t.added[g.bucket] = true
		}
		g.entries = entries
		t.served.replace(g, r)
		t.touch(name)
	case g.resource == nil:
		t.vips.remove(name) // nobody was sent its address
		t.drop(name)
	}
	return err
}

// group returns a group, and creates it if there is none. The caller holds mu.
func (t *Target) group(name registry.Group) *servedGroup {
	g := t.groups[name]
	if g == nil {
		g = &servedGroup{bucket: bucketOf(name)}
		t.groups[name] = g
	}
	return g
}

// drop deletes a group. The caller holds mu.
func (t *Target) drop(name registry.Group) {
	if g := t.groups[name]; g != nil {
		t.served.replace(g, nil)
		t.vips.reserve(name, time.Now())
		delete(t.groups, name)
		t.touch(name)
	}
}

// touch has a group pushed and kept. The caller holds mu.
func (t *Target) touch(name registry.Group) {
	t.dirty[bucketOf(name)] = true
	if t.changed.IsZero() {
		t.changed = time.Now()
	}
	t.wake()
}

// address returns the address of a group; none if it asks for none or there is none
// left.
func (t *Target) address(name registry.Group, r parsedGroup) netip.Addr {
	if r.VIP == "" || !t.o.VIPs.IsValid() {
		return netip.Addr{}
	}
	t.mu.Lock()
	t.vips.add(name)
	vip := t.vips.of(name)
	t.mu.Unlock()
	if !vip.IsValid() {
		t.o.Observe(Observation{Kind: ObservedNoAddress})
	}
	return vip
}
