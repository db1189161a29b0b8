package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Options tune a Target.
type Options struct {
	Owner string        // as registry.Held.Owner has it: everything here is this owner's
	VIPs  netip.Prefix  // the range of the codecs that write here; the zero value: none
	Quiet time.Duration // how long followers of a first change are gathered before they are pushed; 0 is 50 ms

	// RevisionFilter leaves resources of another revision out for an istiod
	// that names its own.
	RevisionFilter bool

	// State keeps what was served over a restart; nil keeps nothing.
	State *StateFile

	// Served is told of the keys of a set, and where they are found, once an
	// istiod confirmed it; may be nil.
	Served func(map[naming.ServiceKey]naming.HostAddress)

	Observe func(Observation) // may be nil
}

// A Target holds the ServiceEntries that are served. It is safe for use by
// many goroutines.
type Target struct {
	o Options

	mu      sync.Mutex
	groups  map[registry.Group]*group
	sorted  []*group // those with a resource, by its name
	vips    map[netip.Addr]registry.Group
	settled bool
	pushed  snapshot
	changed time.Time // since when pushed is not the newest; zero where it is
	acked   snapshot  // what an istiod confirmed last
	told    string    // the version that Served was told of
	watches map[*watch]struct{}
	kick    chan struct{}
}

// A group is one ServiceEntry.
type group struct {
	entries  map[string]string
	resource *resource // nil where the entries make none
	keys     map[naming.ServiceKey]naming.HostAddress
	vip      netip.Addr
}

// A snapshot is a set that is served. It is never written again.
type snapshot struct {
	version string
	content []*resource
	keys    map[naming.ServiceKey]naming.HostAddress
}

// NewTarget returns a target that serves what its state file holds, if
// anything, and otherwise answers nothing before Settled.
func NewTarget(o Options) (*Target, error) {
	o.Quiet = cmp.Or(o.Quiet, 50*time.Millisecond)
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	if o.Served == nil {
		o.Served = func(map[naming.ServiceKey]naming.HostAddress) {}
	}
	t := &Target{
		o: o, groups: make(map[registry.Group]*group), vips: make(map[netip.Addr]registry.Group),
		watches: make(map[*watch]struct{}), kick: make(chan struct{}, 1),
	}
	if o.State == nil {
		return t, nil
	}
	entries, err := o.State.Load()
	if err != nil {
		return t, fmt.Errorf("state: starting without: %w", err)
	}
	if len(entries) > 0 {
		t.restore(entries)
	}
	return t, nil
}

func (t *Target) restore(entries []registry.Entry) {
	for _, e := range entries {
		t.group(e.Group).entries[e.Key] = e.Value
	}
	for _, g := range slices.SortedFunc(maps.Keys(t.groups), registry.Group.Compare) {
		if err := t.render(g); err != nil {
			t.forget(g)
		}
	}
	t.settled = true
	t.pushed = t.build()
}

// Groups implements registry.Target.
func (t *Target) Groups(context.Context) ([]registry.Group, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.groups), registry.Group.Compare), nil
}

// Read implements registry.Target.
func (t *Target) Read(_ context.Context, name registry.Group) ([]registry.Held, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[name]
	if g == nil {
		return nil, nil
	}
	var out []registry.Held
	for _, key := range slices.Sorted(maps.Keys(g.entries)) {
		e := registry.Entry{Group: name, Key: key, Value: g.entries[key]}
		out = append(out, registry.Held{Entry: e, Owner: t.o.Owner, Live: true})
	}
	return out, nil
}

// Write implements registry.Target. What it changes is pushed soon.
func (t *Target) Write(ctx context.Context, c registry.Change) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write %s: %w", c.Group, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.group(c.Group)
	if err := g.conditions(c); err != nil {
		t.forgetEmpty(c.Group)
		return err
	}
	before := maps.Clone(g.entries)
	for _, w := range c.Put {
		g.entries[w.New.Key] = w.New.Value
	}
	for _, h := range c.Delete {
		delete(g.entries, h.Key)
	}
	if err := t.render(c.Group); err != nil {
		g.entries = before
		t.forgetEmpty(c.Group)
		return fmt.Errorf("write %s: %w: %w", c.Group, registry.ErrRefused, err)
	}
	t.forgetEmpty(c.Group)
	if t.changed.IsZero() {
		t.changed = time.Now()
	}
	t.wake()
	return nil
}

// conditions reports whether everything that the change replaces or deletes
// is still as it was held, or already as it should be.
func (g *group) conditions(c registry.Change) error {
	for _, w := range c.Put {
		value, there := g.entries[w.New.Key]
		switch {
		case there && value == w.New.Value: // a repetition
		case w.Old == nil && there, w.Old != nil && (!there || value != w.Old.Value):
			return fmt.Errorf("write %s: entry %q: %w", c.Group, w.New.Key, registry.ErrConflict)
		}
	}
	for _, h := range c.Delete {
		if value, there := g.entries[h.Key]; there && value != h.Value {
			return fmt.Errorf("write %s: entry %q: %w", c.Group, h.Key, registry.ErrConflict)
		}
	}
	return nil
}

// Settled tells the target that what it holds is complete: from now on it
// answers. It may be called again.
func (t *Target) Settled() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.settled {
		t.settled = true
		t.changed = time.Now()
		t.wake()
	}
}

func (t *Target) group(name registry.Group) *group {
	g := t.groups[name]
	if g == nil {
		g = &group{entries: make(map[string]string)}
		t.groups[name] = g
	}
	return g
}

// render makes the resource of a group anew, or takes it away where the group
// is empty. The caller holds mu.
func (t *Target) render(name registry.Group) error {
	g := t.groups[name]
	if len(g.entries) == 0 {
		t.place(g, nil)
		if g.vip.IsValid() {
			delete(t.vips, g.vip)
			g.vip = netip.Addr{}
		}
		g.keys = nil
		return nil
	}
	entries := make([]registry.Entry, 0, len(g.entries))
	for key, value := range g.entries {
		entries = append(entries, registry.Entry{Group: name, Key: key, Value: value})
	}
	slices.SortFunc(entries, registry.Entry.Compare)
	parsed, err := serviceentry.Parse(name, entries)
	if err != nil {
		return err //nolint:wrapcheck // it names the group already
	}
	t.address(name, g, parsed)
	r, err := encode(parsed, g.vip)
	if err != nil {
		return err
	}
	g.keys = keysOf(parsed)
	t.place(g, r)
	return nil
}

func keysOf(r serviceentry.Resource) map[naming.ServiceKey]naming.HostAddress {
	keys := make(map[naming.ServiceKey]naming.HostAddress, len(r.Keys))
	for _, text := range r.Keys {
		if k, err := naming.ParseServiceKey(text); err == nil { // the codec wrote it
			keys[k] = naming.HostAddress{Host: r.Host, Port: r.Port.Number}
		}
	}
	return keys
}

// maxChoices is how many addresses are tried for a host. With a range that is
// filled to a half, one of them is free in all but one of a million cases.
const maxChoices = 20

// address gives a group the first of its choices that no other group has.
func (t *Target) address(name registry.Group, g *group, r serviceentry.Resource) {
	if r.VIP == "" || !t.o.VIPs.IsValid() || g.vip.IsValid() {
		return
	}
	for n := range maxChoices {
		vip := serviceentry.VIP(t.o.VIPs, r.Host, n)
		if _, taken := t.vips[vip]; !taken {
			t.vips[vip], g.vip = name, vip
			return
		}
	}
	t.o.Observe(Observation{Kind: ObservedNoAddress})
}

// place puts a group's resource where it belongs in the order of names.
func (t *Target) place(g *group, r *resource) {
	old := g.resource
	g.resource = r
	if old == nil && r == nil || old != nil && r != nil {
		return // in or out of the list as before
	}
	if r == nil {
		g.resource = old
		at, _ := t.find(old.name)
		t.sorted = slices.Delete(t.sorted, at, at+1)
		g.resource = nil
		return
	}
	at, _ := t.find(r.name)
	t.sorted = slices.Insert(t.sorted, at, g)
}

func (t *Target) find(name string) (int, bool) {
	return slices.BinarySearchFunc(t.sorted, name, func(g *group, name string) int { return cmp.Compare(g.resource.name, name) })
}

func (t *Target) forgetEmpty(name registry.Group) {
	if g := t.groups[name]; g != nil && len(g.entries) == 0 {
		delete(t.groups, name)
	}
}

func (t *Target) forget(name registry.Group) {
	t.groups[name].entries = nil
	_ = t.render(name) // of nothing: it cannot fail
	delete(t.groups, name)
}

func (t *Target) wake() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// ErrNotSettled says that nothing is served yet.
var ErrNotSettled = errors.New("waits for every source to tell of everything once")

// Ready returns nil once istiods are answered.
func (t *Target) Ready() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.settled {
		return ErrNotSettled
	}
	return nil
}
