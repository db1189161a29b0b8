package bridge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// listens keeps the events of a story, but for those of what was written.
func listens(s *story) *[]bridge.Event {
	return listensTo(s, func(k bridge.EventKind) bool { return k != bridge.EventApplied })
}

func listensTo(s *story, kind func(bridge.EventKind) bool) *[]bridge.Event {
	var events []bridge.Event
	s.opts.OnEvent = func(e bridge.Event) { // read between steps alone
		if kind(e.Kind) {
			events = append(events, e)
		}
	}
	return &events
}

func TestEvents(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a hold reports what, why, since when and what would release it, and by whom it ended": func(t *testing.T) {
			var events *[]bridge.Event
			s := held(t, func(s *story) { events = listens(s) })
			id := s.hold().ID
			if len(*events) != 1 {
				t.Fatalf("%+v", *events)
			}
			e := (*events)[0]
			if e.Kind != bridge.EventHold || e.Subject != id || e.Bridge != "b" || e.Target != "memory" || e.Since.IsZero() ||
				!strings.Contains(e.What, "20 deletions") || !strings.Contains(e.Why, "10 of 20 services") || !strings.Contains(e.Release, "approval") {
				t.Errorf("%+v", e)
			}
			s.in(time.Minute)
			s.denies(id)
			s.approves(id, "bob")
			s.in(0)
			if len(*events) != 3 || (*events)[1].Kind != bridge.EventDenied || (*events)[1].Who != "ann" ||
				(*events)[2].Kind != bridge.EventRelease || (*events)[2].Subject != id || !strings.Contains((*events)[2].Why, "bob") {
				t.Errorf("%+v", (*events)[1:])
			}
		},
		"a hold is reported again where something else ends it than was said": func(t *testing.T) {
			var events *[]bridge.Event
			s := held(t, func(s *story) { events = listens(s) })
			id := s.hold().ID
			s.has().in(time.Minute)
			if !slices.ContainsFunc(*events, func(e bridge.Event) bool {
				return e.Kind == bridge.EventHold && e.Subject == id && strings.HasPrefix(e.Release, "by approval alone")
			}) {
				t.Errorf("nobody is told that %s ends by approval alone: %+v", id, *events)
			}
		},
		"what another changed is reported and restored, once a refresh": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			events := listens(s)
			s.starts().has(service("a", "10.0.0.1:80")).in(time.Second)
			edits := 0
			for range 60 { // another writer that never gives up
				if e := s.target.Entries()[0]; e.Value != "edited" {
					edits++
					s.target.Set(registry.Held{Entry: registry.Entry{Group: e.Group, Key: e.Key, Value: "edited"}, Owner: "me", Live: true})
				}
				s.in(10 * time.Second)
			}
			s.in(5 * time.Minute)
			if e := s.target.Entries()[0]; e.Value == "edited" || edits > 4 {
				t.Errorf("%d edits in ten minutes, and %q in the end", edits, e.Value)
			}
			if len(*events) == 0 || (*events)[0].Kind != bridge.EventDrift || !strings.HasSuffix((*events)[0].Subject, "a") {
				t.Errorf("%+v", *events)
			}
		},
		"a conflict is reported once": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding(theirs("a", "10.0.0.1:80"))
			events := listens(s)
			s.starts().has(service("a", "10.0.0.1:80")).in(time.Hour)
			if len(*events) != 1 || (*events)[0].Kind != bridge.EventConflict || !strings.Contains((*events)[0].Why, "belongs to") {
				t.Errorf("%+v", *events)
			}
		},
	})
}
