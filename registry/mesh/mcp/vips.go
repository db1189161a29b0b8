package mcp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// vips gives every host an address that depends on the set of hosts alone,
// whatever the order in which they came: the same on every replica, and after a
// restart. A host has its first choice unless another wants the same; then
// neither has it, and each has its next, which lies in a part of the range that
// no first choice does; and so on. So an address that a host had to leave is
// nobody's, for as long as both are there.
type vips struct {
	within netip.Prefix
	claims map[netip.Addr][]registry.Group // who wants an address, and those wanted before
	choice map[registry.Group]int          // the one that a host has
	moved  map[registry.Group]struct{}     // hosts whose address is another since it was last asked for
}

func newVIPs(within netip.Prefix) vips {
	return vips{
		within: within, claims: make(map[netip.Addr][]registry.Group),
		choice: make(map[registry.Group]int), moved: make(map[registry.Group]struct{}),
	}
}

// of returns the address of a host, none where its choices are exhausted.
func (v *vips) of(host registry.Group) netip.Addr {
	delete(v.moved, host)
	return serviceentry.VIP(v.within, host.Name, v.choice[host])
}

// add takes a host in.
func (v *vips) add(host registry.Group) {
	if _, there := v.choice[host]; !there {
		v.claim(host, 0)
	}
}

// claim gives a host its n-th choice, or a later one where others want that.
func (v *vips) claim(host registry.Group, n int) {
	v.choice[host] = n
	v.moved[host] = struct{}{}
	at := serviceentry.VIP(v.within, host.Name, n)
	if !at.IsValid() {
		return
	}
	others := v.claims[at]
	v.claims[at] = append(others, host)
	if len(others) == 1 {
		v.claim(others[0], n+1)
	}
	if len(others) > 0 {
		v.claim(host, n+1)
	}
}

// remove forgets a host.
func (v *vips) remove(host registry.Group) {
	if _, there := v.choice[host]; there {
		v.release(host, 0)
		delete(v.choice, host)
		delete(v.moved, host)
	}
}

// release takes back the claims of a host from its n-th choice on. Whoever is
// left alone with one of them has it.
func (v *vips) release(host registry.Group, n int) {
	for ; n <= v.choice[host]; n++ {
		at := serviceentry.VIP(v.within, host.Name, n)
		if !at.IsValid() {
			return
		}
		left := slices.DeleteFunc(v.claims[at], func(g registry.Group) bool { return g == host })
		v.claims[at] = left
		switch {
		case len(left) == 0:
			delete(v.claims, at)
		case len(left) == 1 && v.choice[left[0]] > n:
			v.release(left[0], n+1)
			v.choice[left[0]] = n
			v.moved[left[0]] = struct{}{}
		}
	}
}

// reservedFor is how long the addresses of a host that is gone are kept from
// others: whoever resolved one may hold it that long.
const reservedFor = time.Hour

// reserveAddresses keeps the addresses of a host that is gone from others for a while. The
// caller holds mu.
func (t *Target) reserveAddresses(name registry.Group, since time.Time) {
	if _, had := t.vips.choice[name]; had {
		t.gone[name] = since
	}
}

// releaseAddresses gives back the addresses that were reserved for long enough.
func (t *Target) releaseAddresses(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, since := range t.gone {
		if now.Sub(since) >= reservedFor {
			delete(t.gone, name)
			t.vips.remove(name)
			t.touch(name)
		}
	}
}

// readdress encodes anew what has another address by now. The caller holds mu.
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
