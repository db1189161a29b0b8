package bridge_test

import (
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestRegistered: processes register themselves as b, while the source reports a at their
// addresses.
func TestRegistered(t *testing.T) {
	const one, two = "10.0.0.1:80", "10.0.0.2:80"
	warns := func(s *story, want string) {
		s.Helper()
		a := s.of("a")
		s.is("warning", a.Warning(), want)
	}
	asB := one + " registers itself as test:/b " + one + ", not as test:/a " + one
	stories(t, speed, map[string]func(*story){
		"before the source is known": func(s *story) {
			s.storing(selfRegistered("b", one)).has().in(time.Minute).put(service("a", one, two))
			warns(s.in(time.Second).inSync(true), asB)
		},
		"several, of which some take themselves off": func(s *story) {
			s.storing(selfRegistered("b", one), selfRegistered("b", two)).has(service("a", one, two)).in(time.Second)
			warns(s, one+" and another address register themselves as test:/b "+one+", not as test:/a "+one)
			s.target.Drop(group("b"), two)
			warns(s.in(time.Hour), asB)
			s.target.Drop(group("b"), one)
			warns(s.in(time.Hour), "")
		},
		"the rule is corrected": func(s *story) {
			s.storing(selfRegistered("b", one)).has(service("a", one)).in(time.Second)
			warns(s, asB)
			s.put(service("a", two)).in(time.Second)
			warns(s, "")
			s.in(time.Hour)
			before := len(s.when(memory.OpRead, "b"))
			s.in(time.Hour).is("readings of b", len(s.when(memory.OpRead, "b")), before)
		},
		"in groups of which each has one service": func(s *story) {
			exclusive := func(e registry.Entry) registry.Entry {
				e.Group.Exclusive = true
				return e
			}
			s.bridges[0].Project = func(sv *registry.Service) ([]registry.Entry, error) {
				entries, err := perService(sv)
				for i := range entries {
					entries[i] = exclusive(entries[i])
				}
				return entries, err
			}
			own := selfRegistered("b", one)
			own.Entry = exclusive(own.Entry)
			s.storing(own).has(service("a", one)).in(time.Second)
			warns(s, asB)
		},
		"in a target where providers cannot register themselves": func(s *story) {
			s.storing(selfRegistered("a", two), selfRegistered("b", one)).starts(sessionless{s.target}).has(service("a", one)).in(time.Minute)
			warns(s, "")
			s.is("others", s.of("a").Others == nil, true)
		},
		"of another owner": func(s *story) {
			s.storing(theirs("b", one)).has(service("a", one)).in(time.Minute)
			warns(s, "")
		},
		"other entries in its group": func(s *story) {
			s.storing(selfRegistered("a", two)).has(service("a", one)).in(time.Minute)
			warns(s, "")
			others := s.of("a").Others
			s.is("others", others != nil && others.Entries == 1 && others.Some[0] == "test:/a "+two, true)
		},
		"what contradicts it is watched": func(s *story) {
			w := s.watched()
			s.storing(selfRegistered("b", one)).starts(w).has().in(time.Hour)
			w.groups.take()
			s.put(service("a", one, two)).in(time.Second)
			warns(s, asB)
			s.storing(selfRegistered("b", two))
			w.changes.add(group("b"))
			w.changed <- struct{}{}
			s.in(time.Second).is("addresses", s.of("a").Registered[0].Addresses, 2)
			s.is("watched", slices.Contains(w.groups.take(), group("b")), true)
		},
	})
}
