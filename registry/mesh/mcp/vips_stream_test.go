package mcp_test

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// pair returns two interfaces whose hosts have the same first choice.
func pair(t *testing.T) (a, b string) {
	t.Helper()
	hosts := naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}
	seen := make(map[netip.Addr]string)
	for i := range 10000 {
		name := fmt.Sprintf("api.s%d", i)
		host := hosts.Of(naming.MeshName{Protocol: "tri", Key: naming.ServiceKey{Category: naming.Providers, Interface: name}})
		vip := serviceentry.VIP(netip.MustParsePrefix("240.64.0.0/12"), host, 0)
		if other := seen[vip]; other != "" {
			return other, name
		}
		seen[vip] = name
	}
	t.Fatal("no two hosts collide, want a pair")
	return "", ""
}

// vips returns the addresses that an istiod was sent last, by host.
func (i *istiod) vips() map[string]string {
	i.t.Helper()
	out := make(map[string]string)
	all := i.answers(newType)
	for _, m := range decode(i.t, all[len(all)-1]) {
		out[short(m.spec.GetHosts()[0])] = m.spec.GetAddresses()[0]
	}
	return out
}

func TestServer_HostCollision(t *testing.T) {
	a, b := pair(t)
	bubble(t, "have the same addresses in any order, before or after the first response", func(t *testing.T) {
		one, two, late := start(t, mcp.Options{}), start(t, mcp.Options{}), start(t, mcp.Options{})
		one.put(greeter(a, "10.0.0.1"))
		one.put(greeter(b, "10.0.0.1"))
		two.put(greeter(b, "10.0.0.1"))
		two.put(greeter(a, "10.0.0.1"))
		late.put(greeter(b, "10.0.0.1"))
		for _, r := range []*rig{one, two, late} {
			r.target.SourcesComplete()
		}
		first, second, third := one.connect(newType), two.connect(newType), late.connect(newType)
		alone := third.vips()[b]
		late.put(greeter(a, "10.0.0.1"))
		time.Sleep(time.Second)
		want := first.vips()
		for _, got := range []map[string]string{second.vips(), third.vips()} {
			if got[a] != want[a] || got[b] != want[b] {
				t.Errorf("%v and %v", got, want)
			}
		}
		if want[a] == want[b] || want[a] == alone || want[b] == alone {
			t.Errorf("%v, and %s was only of %s", want, alone, b)
		}
		if v := first.answers(newType)[0].GetVersionInfo(); second.answers(newType)[0].GetVersionInfo() != v {
			t.Error("replicas have different versions of one set, want the same")
		}
	})
	s := newFakeRecorder()
	bubble(t, "keep the address of a removed host unused for an hour", func(t *testing.T) {
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		r.put(greeter(a, "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect(newType)
		of := i.vips()[a]
		r.write(r.groups()[0], nil)
		r.put(greeter(b, "10.0.0.1"))
		time.Sleep(50 * time.Minute)
		if got := i.vips()[b]; got == of {
			t.Errorf("%s was of %s a while ago and is of %s, want it reserved", got, a, b)
		}
	})
	bubble(t, "nor after a restart", func(t *testing.T) {
		time.Sleep(50 * time.Minute) // as the other bubble ended at
		expectFreed(t, s, b)
	})
}

// expectFreed fails unless a host moves to its first choice within 15 minutes of a
// start, and not in the first five.
func expectFreed(t *testing.T, s *fakeRecorder, host string) {
	t.Helper()
	r := start(t, mcp.Options{PersistTo: s.of()})
	r.groups()
	r.target.SourcesComplete()
	i := r.connect(newType)
	before := i.vips()[host]
	time.Sleep(5 * time.Minute)
	if got := i.vips()[host]; got != before {
		t.Errorf("%s moved from %s to %s, want it to stay for an hour", host, before, got)
	}
	time.Sleep(10 * time.Minute)
	if got := i.vips()[host]; got == before {
		t.Errorf("%s has %s after an hour, want its first choice", host, got)
	}
}

func TestTarget_FutureTimeIsNow(t *testing.T) {
	a, b := pair(t)
	s := newFakeRecorder()
	bubble(t, "a host is removed by a clock that is a day ahead", func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		r.put(greeter(a, "10.0.0.1"))
		r.target.SourcesComplete()
		r.connect(newType)
		r.write(r.groups()[0], nil)
		r.put(greeter(b, "10.0.0.1"))
	})
	bubble(t, "a start reads it as now", func(t *testing.T) {
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		r.target.SourcesComplete()
	})
	bubble(t, "its address is free an hour later, over a restart", func(t *testing.T) {
		time.Sleep(50 * time.Minute)
		expectFreed(t, s, b)
	})
}

func TestServer_AddressesAreDistinctAndStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addresses := func(n int) map[string]string {
			r := start(t, mcp.Options{})
			for i := range n {
				r.put(greeter(fmt.Sprintf("api.s%d", i), "10.0.0.1"))
			}
			r.target.SourcesComplete()
			i := r.connect(newType)
			byHost := make(map[string]string)
			used := make(map[string]string)
			for _, m := range decode(t, i.answers(newType)[0]) {
				vip, host := m.spec.GetAddresses()[0], m.spec.GetHosts()[0]
				if other := used[vip]; other != "" {
					t.Errorf("%s and %s have %s, want an address each", host, other, vip)
				}
				if !netip.MustParsePrefix("240.64.0.0/12").Contains(netip.MustParseAddr(vip)) {
					t.Errorf("address %s, want one in the range", vip)
				}
				used[vip], byHost[host] = host, vip
			}
			return byHost
		}
		first, more := addresses(500), addresses(1500)
		moved := 0
		for host, vip := range first {
			if more[host] != vip {
				moved++
			}
			for other, v := range more {
				if other != host && v == vip {
					t.Errorf("%s was of %s and is of %s, want it reserved", vip, host, other)
				}
			}
		}
		if moved > 5 {
			t.Errorf("%d of 500 hosts moved, want only those that collide", moved)
		}
	})
}
