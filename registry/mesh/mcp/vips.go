package mcp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// vipAllocator assigns virtual addresses to hosts. An address depends only on the set of
// hosts, not on the order in which they came. So it is the same on every replica and after
// a restart.
//
// The choices of a host are a sequence of addresses that follows from its name
// (serviceentry.VIP). Each host claims its first choice. If several hosts claim the same
// address, none of them gets it: each claims its next choice, which is in another part of
// the range. So an address that a host had to give up is unused while both hosts exist.
//
// It is guarded by Target.mu.
type vipAllocator struct {
	prefix     netip.Prefix
	claims     map[netip.Addr][]registry.Group // hosts that claim an address
	choices    map[registry.Group]int          // number of the choice that is a host's address
	movedHosts map[registry.Group]struct{}     // hosts whose address changed after addressOf returned it

	// removedAt has the removed hosts whose addresses are still reserved.
	removedAt map[registry.Group]time.Time
}

func newVIPAllocator(within netip.Prefix) vipAllocator {
	return vipAllocator{
		prefix: within, claims: make(map[netip.Addr][]registry.Group),
		choices: make(map[registry.Group]int), movedHosts: make(map[registry.Group]struct{}),
		removedAt: make(map[registry.Group]time.Time),
	}
}

// addressOf returns the address of a host. It is invalid if the host has no choice left.
func (v *vipAllocator) addressOf(host registry.Group) netip.Addr {
	delete(v.movedHosts, host)
	return serviceentry.VIP(v.prefix, host.Name, v.choices[host])
}

// addHost adds a host, or ends the reservation of its addresses if it was removed. Adding
// it twice is not an error.
func (v *vipAllocator) addHost(host registry.Group) {
	delete(v.removedAt, host)
	if _, there := v.choices[host]; !there {
		v.claimChoice(host, 0)
	}
}

// claimChoice gives a host its n-th choice, or a later one if other hosts claim that one.
func (v *vipAllocator) claimChoice(host registry.Group, n int) {
	v.choices[host] = n
	v.movedHosts[host] = struct{}{}
	at := serviceentry.VIP(v.prefix, host.Name, n)
	if !at.IsValid() {
		return
	}
	others := v.claims[at]
	v.claims[at] = append(others, host)
	if len(others) == 1 {
		v.claimChoice(others[0], n+1)
	}
	if len(others) > 0 {
		v.claimChoice(host, n+1)
	}
}

// removeHost removes a host and its claims at once.
func (v *vipAllocator) removeHost(host registry.Group) {
	if _, there := v.choices[host]; there {
		v.releaseClaims(host, 0)
		delete(v.choices, host)
		delete(v.movedHosts, host)
	}
}

// releaseClaims removes the claims of a host from its n-th choice on. If that leaves one
// host that claims an address, the address becomes that host's.
func (v *vipAllocator) releaseClaims(host registry.Group, n int) {
	for ; n <= v.choices[host]; n++ {
		at := serviceentry.VIP(v.prefix, host.Name, n)
		if !at.IsValid() {
			return
		}
		left := slices.DeleteFunc(v.claims[at], func(g registry.Group) bool { return g == host })
		v.claims[at] = left
		switch {
		case len(left) == 0:
			delete(v.claims, at)
		case len(left) == 1 && v.choices[left[0]] > n:
			v.releaseClaims(left[0], n+1)
			v.choices[left[0]] = n
			v.movedHosts[left[0]] = struct{}{}
		}
	}
}

// reservedFor is how long the addresses of a removed host are not assigned to others,
// because clients may cache resolved names that long.
const reservedFor = time.Hour

// reserveAddresses marks a host as removed, and keeps its claims until the reservation
// expires.
func (v *vipAllocator) reserveAddresses(host registry.Group, since time.Time) {
	if _, had := v.choices[host]; had {
		v.removedAt[host] = since
	}
}

// expireReservations removes the hosts whose reservation has expired, and returns them.
func (v *vipAllocator) expireReservations(now time.Time) (hosts []registry.Group) {
	for host, since := range v.removedAt {
		if now.Sub(since) >= reservedFor {
			delete(v.removedAt, host)
			v.removeHost(host)
			hosts = append(hosts, host)
		}
	}
	return hosts
}
