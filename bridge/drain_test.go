package bridge_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// selfRegistered is the entry of a provider that registered itself.
func selfRegistered(g, addr string) registry.Stored {
	h := theirs(g, addr)
	h.Owner = ""
	return h
}

// TestDrain: a provider registers itself at an address that the source also reports, and
// deregisters while the source still reports it.
func TestDrain(t *testing.T) {
	const one, two = "10.0.0.1:80", "10.0.0.2:80"
	both := func() *registry.Service { return service("a", one, two) }
	begin := func(s *story) *story {
		s.recorded().storing(selfRegistered("a", one)).has(both()).in(time.Minute)
		return s.stores("a "+one, "a "+two).reason("a", bridge.ReasonConflict, "belongs to an entry without owner")
	}
	drained := func(s *story) *story {
		begin(s).target.Drop(group("a"), one)
		return s.resync().in(time.Hour).stores("a "+two).reason("a", bridge.ReasonConflict, "deregistered")
	}
	stories(t, speed, map[string]func(*story){
		"it is not taken over": func(s *story) { drained(s) },
		"nor where only one service may claim": func(s *story) {
			whole := func(e registry.Entry) registry.Entry {
				e.Group.Exclusive = true
				return e
			}
			s.bridges[0].Project = func(sv *registry.Service) ([]registry.Entry, error) {
				all, err := perService(sv)
				for i := range all {
					all[i] = whole(all[i])
				}
				return all, err
			}
			own := selfRegistered("a", one)
			own.Entry = whole(own.Entry)
			s.recorded().storing(own).has(both()).in(time.Minute)
			s.target.Drop(own.Group, one)
			s.resync().in(time.Hour).stores("a "+two).reason("a", bridge.ReasonConflict, "deregistered")
		},
		"until the source left it out once": func(s *story) {
			drained(s).put(service("a", two)).in(time.Second).put(both()).in(time.Second).stores("a "+one, "a "+two).reason("a", bridge.ReasonSynced, "")
			s.in(time.Minute).is("records", s.records.drained(), 0)
		},
		"until it registers itself again": func(s *story) {
			drained(s).storing(selfRegistered("a", one)).resync().in(time.Second).reason("a", bridge.ReasonConflict, "an entry without owner")
			s.in(time.Minute).is("records", s.records.drained(), 0)
		},
		"a restart remembers it": func(s *story) {
			s = drained(s).again()
			s.has(both()).in(time.Hour).stores("a "+two).reason("a", bridge.ReasonConflict, "deregistered")
			s.put(service("a", two)).in(time.Second).put(both()).in(time.Second).stores("a "+one, "a "+two)
		},
		"a restart before the source is known": func(s *story) {
			s = drained(s).again()
			s.starts().in(time.Hour).has(both()).in(time.Hour).stores("a " + two)
		},
		"a restart after which it is unclaimed": func(s *story) {
			s = drained(s).again()
			s.has(service("a", two)).in(time.Minute).is("records", s.records.drained(), 0)
			s.put(both()).in(time.Second).stores("a "+one, "a "+two)
		},
		"a service that is unknown meanwhile": func(s *story) {
			s = drained(s).again()
			s.unknown("a", errDown).has().in(time.Minute).is("records", s.records.drained(), 1)
			s.unknown("a", nil).has(both()).in(time.Minute).stores("a " + two)
		},
		"the entry of another owner is not a provider's own": func(s *story) {
			s.recorded().storing(theirs("a", one)).has(service("a", one)).in(time.Minute).target.Drop(group("a"), one)
			s.resync().in(time.Second).stores("a "+one).is("entry", s.target.Entries()[0].Value, `{"weight":0}`)
		},
		"an unclaimed place": func(s *story) {
			s.recorded().storing(selfRegistered("a", one)).has(service("a", two)).in(time.Minute).target.Drop(group("a"), one)
			s.resync().in(time.Minute).put(both()).in(time.Second).stores("a "+one, "a "+two)
		},
	})
}

// joined returns a service of the group g, in which others may claim.
func joined(s *registry.Service) *registry.Service {
	s.Application = "g"
	return s
}

// TestDrain_SharedGroup: two services share one group, and one of them is drained.
func TestDrain_SharedGroup(t *testing.T) {
	const one, two = "10.0.0.1:80", "10.0.0.2:80"
	a := func() *registry.Service { return joined(service("a", two)) }
	b := func() *registry.Service { return joined(service("b", one)) }
	drained := func(s *story) *story {
		s.recorded().storing(selfRegistered("g", one)).has(a(), b()).in(time.Minute)
		s.target.Drop(group("g"), one)
		return s.resync().in(time.Hour).stores("g "+two).reason("b", bridge.ReasonConflict, "deregistered")
	}
	stories(t, speed, map[string]func(*story){
		"restart": func(s *story) {
			s = drained(s).again()
			s.has(a(), b()).in(time.Hour).stores("g " + two)
		},
		"restart, source known late": func(s *story) {
			s = drained(s).again()
			s.starts().in(10*time.Second).has(a(), b()).in(time.Hour).stores("g " + two)
		},
		"restart, source reports one by one": func(s *story) {
			s = drained(s).again()
			s.starts().in(10*time.Second).put(a()).in(time.Second).put(b()).in(time.Second).has(a(), b()).in(time.Hour).stores("g " + two)
		},
		"another service of the group is added first": func(s *story) {
			s = drained(s)
			s.put(joined(service("0", "10.0.0.3:80"))).in(time.Hour).stores("g "+two, "g 10.0.0.3:80")
		},
	})
}

// TestDrain_Replicas shows that a standby does not change the records of its leader.
func TestDrain_Replicas(t *testing.T) {
	const one, two, three = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
	stories(t, speed, map[string]func(*story){
		"a standby erases what the leader drained later": func(s *story) {
			all := func() *registry.Service { return service("a", one, two, three) }
			s.recorded().elected(leader(1)).storing(selfRegistered("a", one), selfRegistered("a", two)).has(all()).in(time.Minute)
			s.target.Drop(group("a"), one)
			s.resync().in(time.Minute)
			b := s.anotherProcess().elected(standby(1)).has(all()).in(time.Minute) // loads the record with one
			s.target.Drop(group("a"), two)
			s.resync().in(time.Minute).stores("a " + three) // one and two are drained
			left := service("a", two, three)                // the pod of one restarts
			s.reports(left)
			s.in(time.Second)
			b.reports(left) // the standby sees it a moment later
			b.in(time.Minute)
			s.in(time.Minute)
			s.is("records", s.records.drained(), 1)
			s.stop()
			b.becomes(leader(2)).in(time.Hour).stores("a " + three)
		},
		"a standby that starts (rolling update) and two services": func(s *story) {
			a := func() *registry.Service { return joined(service("a", two)) }
			b := func() *registry.Service { return joined(service("b", one)) }
			s.recorded().elected(leader(1)).storing(selfRegistered("g", one)).has(a(), b()).in(time.Minute)
			s.target.Drop(group("g"), one)
			s.resync().in(time.Minute).stores("g " + two)
			n := s.anotherProcess().elected(standby(1)).starts().in(2*time.Second).has(a(), b()).in(time.Minute)
			s.is("records", s.records.drained(), 1)
			s.stop()
			n.becomes(leader(2)).in(time.Hour).stores("g " + two)
		},
	})
}

// TestDrain_SlowRecords: the first read of the records fails, or takes long.
func TestDrain_SlowRecords(t *testing.T) {
	const one, two = "10.0.0.1:80", "10.0.0.2:80"
	both := func() *registry.Service { return service("a", one, two) }
	drained := func(s *story) *story {
		s.recorded().storing(selfRegistered("a", one)).has(both()).in(time.Minute)
		s.target.Drop(group("a"), one)
		return s.resync().in(time.Hour).stores("a "+two).reason("a", bridge.ReasonConflict, "deregistered")
	}
	stories(t, speed, map[string]func(*story){
		"first reading fails once": func(s *story) {
			s = drained(s).again()
			s.records.late.Store(int64(never))
			s.opts.Timeout = 500 * ms
			s.has(both()).in(700 * ms)
			s.records.late.Store(0)
			s.in(time.Hour).stores("a " + two)
		},
		"only their records cannot be read at first": func(s *story) {
			s = drained(s).again()
			s.records.lose("drained")
			s.has(both()).in(3 * time.Second)
			s.records.lose("")
			s.in(time.Hour).stores("a " + two)
			reads := s.records.reads
			s.in(time.Hour).is("further readings", s.records.reads-reads, 0)
		},
		"first reading takes 2 s": func(s *story) {
			s = drained(s).again()
			s.records.late.Store(int64(500 * ms))
			s.has(both()).in(10 * time.Second)
			s.records.late.Store(0)
			s.in(time.Hour).stores("a " + two)
		},
	})
}

// TestDrain_Guard: a drained endpoint is claimed and not written, so it replaces nothing.
func TestDrain_Guard(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"last endpoint": func(s *story) {
			const one, two = "10.0.0.1:80", "10.0.0.2:80"
			s.recorded().storing(selfRegistered("a", one)).has(service("a", one, two), service("z", "10.0.9.9:80")).in(10 * time.Minute)
			s.target.Drop(group("a"), one)
			s.resync().in(10*time.Minute).stores("a "+two, "z 10.0.9.9:80")
			s.put(service("a", one)).in(20*time.Second).stores("a "+two, "z 10.0.9.9:80") // the last one waits for 30 s
		},
		"last endpoint, control: nothing drained": func(s *story) {
			const two = "10.0.0.2:80"
			s.recorded().has(service("a", two), service("z", "10.0.9.9:80")).in(10 * time.Minute)
			s.put(service("a")).in(20*time.Second).stores("a "+two, "z 10.0.9.9:80")
		},
		"a mass removal": func(s *story) {
			f := fleet(20, 2)
			for i := range f {
				s.recorded()
				s.storing(selfRegistered(string(f[i].Name), f[i].Endpoints[0].Address()))
			}
			s.has(f...).in(10 * time.Minute)
			for i := range f {
				s.target.Drop(group(string(f[i].Name)), f[i].Endpoints[0].Address())
			}
			s.resync().in(10 * time.Minute).storesN(20)
			for i := range 20 { // the source shows only the drained endpoint of each
				g := *f[i]
				g.Endpoints = g.Endpoints[:1]
				s.put(&g)
			}
			s.in(time.Hour).storesN(20).hold()
		},
	})
}

// TestDrain_Remedy: a loop that starts over a complete table also ends a drain.
func TestDrain_Remedy(t *testing.T) {
	const one, two = "10.0.0.1:80", "10.0.0.2:80"
	stories(t, speed, map[string]func(*story){
		"exclude, reload, include, reload": func(s *story) {
			both := service("a", one, two)
			s.recorded().storing(selfRegistered("a", one)).has(both).in(time.Minute)
			s.target.Drop(group("a"), one)
			s.resync().in(time.Minute).stores("a " + two)
			s = s.again().reports().starts().in(20 * time.Second) // excluded: the table is complete before the loop starts
			s.is("records", s.records.drained(), 0)
			s.again().reports(both).starts().in(time.Minute).stores("a "+one, "a "+two)
		},
	})
}
