package mcp

import (
	"net/netip"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A group is one ServiceEntry.
type group struct {
	bucket   int
	entries  []entry   // by key
	resource *resource // what they make; nil before the first and after the last of them
}

type entry struct {
	Key   string `json:"k"`
	Value string `json:"v"`
}

func (e entry) compare(o entry) int { return strings.Compare(e.Key, o.Key) }

// in returns an entry as others know it.
func (e entry) in(name registry.Group) registry.Entry {
	return registry.Entry{Group: name, Key: e.Key, Value: e.Value}
}

// set makes entries, which are by key, all that a group holds. Where they make no
// resource the group is kept as it was. To read and encode them is nearly all there is to do
// and needs no lock: nobody else changes the group meanwhile, as registry.Target
// has it.
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

// group returns a group, which it makes where there is none. The caller holds
// mu.
func (t *Target) group(name registry.Group) *group {
	g := t.groups[name]
	if g == nil {
		g = &group{bucket: bucketOf(name)}
		t.groups[name] = g
	}
	return g
}

// drop forgets a group and what was served of it. The caller holds mu.
func (t *Target) drop(name registry.Group) {
	if g := t.groups[name]; g != nil {
		t.served.replace(g, nil)
		t.reserveAddresses(name, time.Now())
		delete(t.groups, name)
		t.touch(name)
	}
}

// touch has what is held of a group pushed soon, and kept. The caller holds mu.
func (t *Target) touch(name registry.Group) {
	t.dirty[bucketOf(name)] = true
	if t.changed.IsZero() {
		t.changed = time.Now()
	}
	t.wake()
}

// address returns the address of a group, none where it wants none or there is
// none left.
func (t *Target) address(name registry.Group, r spec) netip.Addr {
	if r.VIP == "" || !t.o.VIPs.IsValid() {
		return netip.Addr{}
	}
	t.mu.Lock()
	delete(t.gone, name)
	t.vips.add(name)
	vip := t.vips.of(name)
	t.mu.Unlock()
	if !vip.IsValid() {
		t.o.Observe(Observation{Kind: ObservedNoAddress})
	}
	return vip
}
