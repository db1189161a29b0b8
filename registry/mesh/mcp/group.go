package mcp

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A group is one ServiceEntry.
type group struct {
	entries  []entry   // by key
	resource *resource // what they make; nil before the first and after the last of them
	vip      netip.Addr
}

type entry struct {
	Key   string `json:"k"`
	Value string `json:"v"`
}

// hold makes entries all that a group holds. Where they make no resource the
// group stays as it was. To read and encode them is nearly all there is to do
// and needs no lock: nobody else changes the group meanwhile, as registry.Target
// has it.
func (t *Target) hold(name registry.Group, entries map[string]string) error {
	if len(entries) == 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.drop(name)
		return nil
	}
	list := make([]registry.Entry, 0, len(entries))
	compact := make([]entry, 0, len(entries))
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		list = append(list, registry.Entry{Group: name, Key: key, Value: entries[key]})
		compact = append(compact, entry{key, entries[key]})
	}
	parsed, err := serviceentry.Parse(name, list)
	if err != nil {
		return err //nolint:wrapcheck // it names the group already
	}
	r, err := encode(parsed, t.address(name, parsed))
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.group(name)
	switch {
	case err == nil:
		g.entries = compact
		t.served.replace(g, r)
		t.touch(name)
	case g.resource == nil:
		t.drop(name)
	}
	return err
}

// group returns a group, which it makes where there is none. The caller holds
// mu.
func (t *Target) group(name registry.Group) *group {
	g := t.groups[name]
	if g == nil {
		g = &group{}
		t.groups[name] = g
	}
	return g
}

// drop forgets a group and what was served of it. The caller holds mu.
func (t *Target) drop(name registry.Group) {
	if g := t.groups[name]; g != nil {
		t.served.replace(g, nil)
		delete(t.vips, g.vip)
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

// maxChoices is how many addresses are tried for a host. With a range that is
// filled to a half, one of them is free in all but one of a million cases.
const maxChoices = 20

// address returns the address of a group, for a new one the first of its
// choices that no other group has.
func (t *Target) address(name registry.Group, r serviceentry.Resource) netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.group(name)
	if r.VIP == "" || !t.o.VIPs.IsValid() || g.vip.IsValid() {
		return g.vip
	}
	for n := range maxChoices {
		vip := serviceentry.VIP(t.o.VIPs, r.Host, n)
		if _, taken := t.vips[vip]; !taken {
			t.vips[vip], g.vip = name, vip
			return vip
		}
	}
	t.o.Observe(Observation{Kind: ObservedNoAddress})
	return netip.Addr{}
}
