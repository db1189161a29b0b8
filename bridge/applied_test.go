package bridge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// Of each batch it can be told afterwards what was written, for whom, why,
// what it was before and what it became.
func TestEachBatchLeavesATrace(t *testing.T) {
	written := func(s *story) *[]bridge.Event {
		return listensTo(s, func(k bridge.EventKind) bool { return k == bridge.EventApplied })
	}
	last := func(t *testing.T, events *[]bridge.Event, changes int) bridge.Event {
		t.Helper()
		if len(*events) == 0 {
			t.Fatal("no event")
		}
		e := (*events)[len(*events)-1]
		if e.Target != "memory" || e.Time.IsZero() || len(e.Changes) != changes {
			t.Fatalf("%+v", e)
		}
		return e
	}
	stories(t, map[string]func(*testing.T){
		"created, updated, deleted": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			events := written(s)
			s.starts().has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Second)
			e := last(t, events, 2)
			if c := e.Changes[0]; e.Bridge != "b" || e.Subject != group("a").String() || e.What != "2 entries created, 0 updated, 0 deleted" ||
				c != (bridge.EntryChange{Op: "create", Key: "10.0.0.1:80", Bridge: "b", Service: "a", Cause: "its service reports it", After: `{"weight":0}`}) {
				t.Errorf("%+v", e)
			}
			s.in(time.Minute).has(service("a", "10.0.0.1:80*7")).in(time.Minute)
			e = last(t, events, 2)
			if d, u := e.Changes[0], e.Changes[1]; d.Op != "delete" || d.Key != "10.0.0.2:80" || d.Before != `{"weight":0}` || d.After != "" ||
				!strings.HasPrefix(d.Cause, "full readings of its source lack it since 2") ||
				u.Op != "update" || u.Before != `{"weight":0}` || u.After != `{"weight":7}` {
				t.Errorf("%+v", e)
			}
		},
		"what a hold let go says whose word that was": func(t *testing.T) {
			var events *[]bridge.Event
			s := held(t, func(s *story) { events = written(s) })
			id := s.hold().ID
			s.approves(id, "ann")
			s.in(time.Minute).holdsN(20)
			if e := last(t, events, 2); e.Changes[0].Cause != "hold "+id+" ended: approved by ann" {
				t.Errorf("%+v", e)
			}
		},
		"what was left from before says so": func(t *testing.T) {
			s := newStory(t).bridge("b", speed).holding(mine("old", "10.0.0.9:80"))
			events := written(s)
			s.starts().has(service("a", "10.0.0.1:80")).in(time.Hour)
			for _, e := range *events {
				if c := e.Changes[0]; c.Op == "delete" && c.Key == "10.0.0.9:80" && c.Cause == "no bridge has claimed it since the start" {
					return
				}
			}
			t.Errorf("%+v", *events)
		},
		"a large batch reports its deletions first, and of so many": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			events := written(s)
			s.starts().has(fleet(1, 30)...).in(time.Minute)
			last(t, events, 10)
			s.has(service("s0", "10.0.9.9:80")).in(time.Minute)
			for _, e := range *events {
				if strings.HasSuffix(e.What, "30 deleted") && e.Changes[9].Op == "delete" && len(e.Changes) == 10 {
					return
				}
			}
			t.Errorf("%+v", *events)
		},
		"of many claims that are refused at a time one is logged": func(t *testing.T) {
			s := newStory(t).bridge("b", speed)
			for _, sv := range fleet(20, 1) {
				s.holding(theirs(string(sv.Name), sv.Endpoints[0].Address()))
			}
			s.starts().has(fleet(20, 1)...).in(time.Minute)
			if n := strings.Count(s.log.String(), `msg="claim refused"`); n != 1 || s.status().Counts.Conflicts != 20 {
				t.Errorf("%d lines\n%s", n, s.log.String())
			}
		},
	})
}
