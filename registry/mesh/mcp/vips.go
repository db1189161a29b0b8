package mcp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// vipAllocator gives every host an address that depends on the set of hosts alone, not
// on their order: the same on every replica, and after a restart. A host has
// its first choice unless another wants the same. Then neither has it, and each
// has its next, which is in a part of the range without first choices; and so
// on. So an address that a host had to leave is nobody's while both are there.
type vipAllocator struct {
	within netip.Prefix
	claims map[netip.Addr][]registry.Group // the hosts that claim an address
	choice map[registry.Group]int          // the number of the one that a host has
	moved  map[registry.Group]struct{}     // hosts whose address changed since of returned it
	gone   map[registry.Group]time.Time    // hosts that went, whose addresses are reserved, and since when
}

func newVIPAllocator(within netip.Prefix) vipAllocator {
	return vipAllocator{
		within: within, claims: make(map[netip.Addr][]registry.Group),
		choice: make(map[registry.Group]int), moved: make(map[registry.Group]struct{}), gone: make(map[registry.Group]time.Time),
	}
}

// of returns the address of a host, none if its choices are exhausted.
func (v *vipAllocator) of(host registry.Group) netip.Addr {
	delete(v.moved, host)
	return serviceentry.VIP(v.within, host.Name, v.choice[host])
}

// add adds a host. Its addresses are not reserved any more.
func (v *vipAllocator) add(host registry.Group) {
	delete(v.gone, host)
	if _, there := v.choice[host]; !there {
		v.claim(host, 0)
	}
}

// claim gives a host its n-th choice, or a later one if others claim that.
func (v *vipAllocator) claim(host registry.Group, n int) {
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

func (v *vipAllocator) remove(host registry.Group) {
	if _, there := v.choice[host]; there {
		v.release(host, 0)
		delete(v.choice, host)
		delete(v.moved, host)
	}
}

// release removes the claims of a host from its n-th choice on. A host that is the
// only one left to claim an address gets it.
func (v *vipAllocator) release(host registry.Group, n int) {
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

// reservedFor is how long the addresses of a host that is gone are kept from others:
// clients may cache what they resolved that long.
const reservedFor = time.Hour

// reserve keeps the addresses of a host that is gone from others.
func (v *vipAllocator) reserve(host registry.Group, since time.Time) {
	if _, had := v.choice[host]; had {
		v.gone[host] = since
	}
}

// expire removes the hosts whose addresses were reserved for long enough, and
// returns them.
func (v *vipAllocator) expire(now time.Time) (hosts []registry.Group) {
	for host, since := range v.gone {
		if now.Sub(since) >= reservedFor {
			delete(v.gone, host)
			v.remove(host)
			hosts = append(hosts, host)
		}
	}
	return hosts
}
