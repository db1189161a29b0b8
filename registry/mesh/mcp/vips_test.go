package mcp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func host(n int) registry.Group { return registry.Group{Name: fmt.Sprintf("s%d.bridge.internal", n)} }

// table returns who has which address.
func (v *vipAllocator) table() map[registry.Group]netip.Addr {
	out := make(map[registry.Group]netip.Addr, len(v.choices))
	for h := range v.choices {
		out[h] = v.addressOf(h)
	}
	return out
}

// The addresses are a function of the set, whatever came and went in
// whatever order, and no two hosts share one. The range is small, so that most
// hosts collide.
func TestVIPs_DependOnTheSetAlone(t *testing.T) {
	for _, within := range []string{"240.64.0.0/20", "240.64.0.0/26", "10.0.0.0/30", "10.0.0.0/31", "10.0.0.7/32", "fd00::/64", "fd00::/120"} {
		within := netip.MustParsePrefix(within)
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 0))
			one, set := newVIPAllocator(within), make(map[int]bool)
			for range 400 {
				n := random.IntN(200)
				if set[n] = !set[n]; set[n] {
					one.addHost(host(n))
				} else {
					one.removeHost(host(n))
					delete(set, n)
				}
			}
			other := newVIPAllocator(within)
			for n := range set { // in any order
				other.addHost(host(n))
			}
			got := one.table()
			if !maps.Equal(got, other.table()) {
				t.Fatalf("%s, seed %d: addresses depend on the order, want them to depend only on the set", within, seed)
			}
			used := make(map[netip.Addr]registry.Group)
			for h, at := range got {
				if rival, there := used[at]; at.IsValid() && (there || !within.Contains(at)) {
					t.Fatalf("%s: %s is of %s and %s, want one host in the range", within, at, h.Name, rival.Name)
				}
				used[at] = h
			}
			for n := range set {
				one.removeHost(host(n))
			}
			if len(one.claims)+len(one.choices)+len(one.movedHosts) != 0 {
				t.Fatalf("%+v without hosts, want it empty", one)
			}
		}
	}
}

// While hosts only come, no address is another's former one.
func TestVIPs_FreedAddress(t *testing.T) {
	v, former := newVIPAllocator(netip.MustParsePrefix("240.64.0.0/22")), make(map[netip.Addr]registry.Group)
	moved := 0
	for n := range 300 {
		v.addHost(host(n))
		for h, at := range v.table() {
			if was, there := former[at]; there && was != h && at.IsValid() {
				t.Fatalf("%s was of %s and is of %s, want it of no other host", at, was.Name, h.Name)
			}
			if was := former[at]; was != h {
				moved++
			}
			former[at] = h
		}
	}
	if moved <= 300 {
		t.Errorf("%d hosts moved, want more than 300", moved)
	}
}
