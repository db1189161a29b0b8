package bridge_test

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// held starts a bridge of 20 services with a hold on the first ten of them.
func held(t *testing.T, change func(*story)) *story {
	t.Helper()
	s := newStory(t).bridge("b", bridge.DefaultGuard())
	if change != nil {
		change(s)
	}
	s.starts().has(fleet(20, 2)...).in(10 * time.Minute)
	s.begin = time.Now()
	s.loses(0, 10).in(0).hold()
	return s
}

// day is how long what never ends is watched, which takes seconds: a part of a
// day in the gate.
func day() time.Duration {
	if testing.Short() {
		return 3 * time.Hour
	}
	return 24 * time.Hour
}

// rest are the services that the hold is not about.
func rest() []*registry.Service { return fleet(20, 2)[10:] }

func TestHold(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"approval lets exactly the set go that it names": func(t *testing.T) {
			s := held(t, nil)
			s.approves(s.hold().ID, "ann")
			s.in(31 * time.Second).holdsN(20).noHold()
			if !strings.Contains(s.log.String(), "approved by ann") {
				t.Error(s.log.String())
			}
			s.table().Put(service("s15", "10.0.15.1:80"))
			s.in(time.Second).holdsN(19) // what was approved does not count
		},
		"it stays while the source cannot report a part, and a decision counts by then": func(t *testing.T) {
			var ended []bridge.Event
			s := held(t, func(s *story) {
				s.opts.OnEvent = func(e bridge.Event) {
					if e.Kind == bridge.EventRelease {
						ended = append(ended, e)
					}
				}
			})
			before := s.hold()
			s.table().Unknown("*", errLost)
			if h := s.in(time.Minute).hold(); h.ID != before.ID || h.Reason != before.Reason || h.Release != before.Release {
				t.Errorf("%+v\nbefore: %+v", h, before)
			}
			s.table().Unknown("*", nil)
			if s.in(time.Minute); len(ended) > 0 {
				t.Errorf("reported an end: %+v", ended)
			}
			s.table().Unknown("*", errLost)
			s.approves(s.in(time.Minute).hold().ID, "ann")
			s.in(time.Hour).holdsN(40)
			s.table().Unknown("*", nil)
			s.in(time.Minute).holdsN(20).noHold()
		},
		"what was denied is listed while the source cannot report it": func(t *testing.T) {
			s := held(t, nil)
			s.denies(s.hold().ID)
			denied := s.in(time.Second).hold()
			s.table().Unknown("*", errLost)
			if h := s.in(time.Minute).hold(); h.ID != denied.ID || !h.Denied {
				t.Errorf("%+v", h)
			}
		},
		"a new connection changes nothing about what ends it": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			s.has(fleet(20, 2)...).in(10 * time.Minute)
			before := s.loses(0, 14).in(2 * time.Minute).hold()
			for range 3 {
				for range 2 {
					if h := s.dials(fleet(20, 2)[14:]...).in(30 * time.Second).hold(); h.ID != before.ID || h.Reason != before.Reason || h.Release != before.Release {
						t.Errorf("%s; ends %s\nbefore: %s; ends %s", h.Reason, h.Release, before.Reason, before.Release)
					}
				}
				s.in(5 * time.Minute)
			}
		},
		"an id of a set that changed is refused": func(t *testing.T) {
			s := held(t, nil)
			id := s.hold().ID
			s.table().Put(fleet(20, 2)[3])
			s.in(time.Second)
			h := s.hold()
			if stays := id[:strings.IndexByte(id, '-')]; !strings.HasPrefix(h.ID, stays+"-") {
				t.Errorf("%s is of another target or bridge than %s", h.ID, id)
			}
			if h.ID == id || len(h.Entries) != 18 {
				t.Errorf("%+v", h)
			}
			for _, err := range []error{s.loop.Approve(t.Context(), id, "ann"), s.loop.Deny(t.Context(), id, "ann")} {
				if !errors.Is(err, bridge.ErrNoHold) {
					t.Errorf("got %v", err)
				}
			}
			s.in(time.Hour).holdsN(40)
		},
		"the same set at another target has another id": func(t *testing.T) {
			id := held(t, nil).hold().ID
			if other := held(t, func(s *story) { s.opts.Target = "staging" }).hold().ID; other == id {
				t.Errorf("a decision on %s counts at two targets", id)
			}
		},
		"a fresh reading is asked for once, halfway, and confirms after ten minutes": func(t *testing.T) {
			var asked atomic.Int32
			s := held(t, func(s *story) {
				s.bridges[0].Recheck = func() {
					asked.Add(1)
					table := s.table()
					table.Stale(errLost)
					time.AfterFunc(2*time.Second, func() {
						table.Dialed()
						table.Replace(func(yield func(*registry.Service) bool) {
							for _, sv := range rest() {
								if !yield(sv) {
									return
								}
							}
						})
					})
				}
			})
			s.in(5*time.Minute - time.Second)
			if asked.Load() != 0 {
				t.Error("asked too early")
			}
			s.in(5 * time.Minute).holdsN(40)
			if n := asked.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
			s.in(32 * time.Second).holdsN(20).noHold()
		},
		"readings over the same connection confirm nothing, and a new one is asked for until there is one": func(t *testing.T) {
			var asked atomic.Int32
			s := held(t, func(s *story) { s.bridges[0].Recheck = func() { asked.Add(1) } })
			for range 60 {
				s.in(time.Minute).has(rest()...)
			}
			s.holdsN(40).hold()
			if n := asked.Load(); n != 12 {
				t.Errorf("asked %d times in an hour", n)
			}
			s.dials(rest()...).in(59 * time.Second).holdsN(40).in(32 * time.Second).holdsN(20).noHold()
		},
		"a source that shows nothing of the bridge confirms nothing": func(t *testing.T) {
			s := standard(t, 20)
			s.dials().in(2 * time.Minute)
			for range 3 {
				s.dials().in(time.Hour).holdsN(40)
			}
			if h := s.hold(); !strings.HasPrefix(h.Release, "by approval alone: no endpoint that is stored is claimed") {
				t.Errorf("%+v", h)
			}
			s.dials(rest()...).in(9 * time.Minute).holdsN(40) // from the start
			s.in(2 * time.Minute).holdsN(20).noHold()
		},
		"what a new configuration claims no more needs approval where it is the most": func(t *testing.T) {
			claims := func(n int) *story {
				s := standard(t, 20)
				s.stop()
				next := newStory(t).bridge("b", bridge.DefaultGuard())
				next.target = s.target
				next.bridges[0].Project = selected(func(sv *registry.Service) error {
					if i, err := strconv.Atoi(string(sv.Name[1:])); err != nil || i >= n {
						return errors.New("not selected")
					}
					return nil
				})
				next.starts().has(fleet(20, 2)...).in(2 * time.Minute).holdsN(40).hold()
				return next.dials(fleet(20, 2)...).in(time.Hour)
			}
			if h := claims(9).holdsN(40).hold(); !strings.HasPrefix(h.Release, "by approval alone: more than half") {
				t.Errorf("%+v", h)
			}
			claims(10).holdsN(20).noHold()
		},
		"a hold without Confirm ends by approval alone": func(t *testing.T) {
			s := held(t, func(s *story) { s.bridges[0].Guard.Confirm = 0 })
			s.in(time.Minute).dials(rest()...).in(time.Hour).holdsN(40)
			if h := s.hold(); h.Release != "by approval" {
				t.Errorf("%+v", h)
			}
		},
	})
}
