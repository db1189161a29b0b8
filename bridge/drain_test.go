package bridge_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// selfRegistered is the entry of a provider that registered itself.
func selfRegistered(g, addr string) registry.Held {
	h := theirs(g, addr)
	h.Owner = ""
	return h
}

// TestDrain has a provider register itself at an address that the source has too, and take
// itself off while the source still has it.
func TestDrain(t *testing.T) {
	const one, two = "10.0.0.1:80", "10.0.0.2:80"
	both := func() *registry.Service { return service("a", one, two) }
	begin := func(s *story) *story {
		s.recorded().holding(selfRegistered("a", one)).has(both()).in(time.Minute)
		return s.holds("a "+one, "a "+two).reason("a", bridge.ReasonConflict, "belongs to an entry without owner")
	}
	drained := func(s *story) *story {
		begin(s).target.Drop(group("a"), one)
		return s.resync().in(time.Hour).holds("a "+two).reason("a", bridge.ReasonConflict, "took itself off")
	}
	stories(t, speed, map[string]func(*story){
		"it is not taken over": func(s *story) { drained(s) },
		"until the source left it out once": func(s *story) {
			drained(s).put(service("a", two)).in(time.Second).put(both()).in(time.Second).holds("a "+one, "a "+two).reason("a", bridge.ReasonSynced, "")
			s.in(time.Minute).is("records", s.records.drained(), 0)
		},
		"until it registers itself again": func(s *story) {
			drained(s).holding(selfRegistered("a", one)).resync().in(time.Second).reason("a", bridge.ReasonConflict, "an entry without owner")
			s.in(time.Minute).is("records", s.records.drained(), 0)
		},
		"a restart remembers it": func(s *story) {
			s = drained(s).again()
			s.has(both()).in(time.Hour).holds("a "+two).reason("a", bridge.ReasonConflict, "took itself off")
			s.put(service("a", two)).in(time.Second).put(both()).in(time.Second).holds("a "+one, "a "+two)
		},
		"a restart before the source is known": func(s *story) {
			s = drained(s).again()
			s.starts().in(time.Hour).has(both()).in(time.Hour).holds("a " + two)
		},
		"a restart after which nobody claims it": func(s *story) {
			s = drained(s).again()
			s.has(service("a", two)).in(time.Minute).is("records", s.records.drained(), 0)
			s.put(both()).in(time.Second).holds("a "+one, "a "+two)
		},
		"a service that is unknown meanwhile": func(s *story) {
			s = drained(s).again()
			s.unknown("a", errDown).has().in(time.Minute).is("records", s.records.drained(), 1)
			s.unknown("a", nil).has(both()).in(time.Minute).holds("a " + two)
		},
		"the entry of another owner is no provider's own": func(s *story) {
			s.recorded().holding(theirs("a", one)).has(service("a", one)).in(time.Minute).target.Drop(group("a"), one)
			s.resync().in(time.Second).holds("a "+one).is("entry", s.target.Entries()[0].Value, `{"weight":0}`)
		},
		"what nobody claimed": func(s *story) {
			s.recorded().holding(selfRegistered("a", one)).has(service("a", two)).in(time.Minute).target.Drop(group("a"), one)
			s.resync().in(time.Minute).put(both()).in(time.Second).holds("a "+one, "a "+two)
		},
	})
}
