package bridge_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// rest returns the services without the held ones of losesTen.
func rest() []*registry.Service { return fleet(20, 2)[10:] }

// losesTen begins with 20 services, and then a hold on the first ten of them, from which
// times count.
func (s *story) losesTen() *story {
	s.Helper()
	s.standard(20)
	s.begin = time.Now()
	s.loses(0, 10).in(0).hold()
	return s
}

func TestHold(t *testing.T) {
	ends := func(lost int, confirm time.Duration, want string) func(*story) {
		return func(s *story) {
			s.bridges[0].Guard.Confirm = confirm
			s.standard(20).loses(0, lost).in(2 * time.Minute).dials(fleet(20, 2)[lost:]...).in(time.Hour).storesN(40)
			s.is("release", s.hold().Release, want)
		}
	}
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"approval lets exactly its set go": func(s *story) {
			id := s.losesTen().hold().ID
			s.approves().in(31 * time.Second).storesN(20).noHold()
			e := s.emitted(bridge.EventRelease)
			s.is("release", []string{e[0].Subject, e[0].Why}, []string{id, "approved by ann"}).says("log", s.log.String(), "approved by ann")
			last := s.emitted(bridge.EventApplied)
			s.is("cause", last[len(last)-1].Changes[0].Cause, "hold "+id+" ended: approved by ann")
			s.put(service("s15", "10.0.15.1:80")).in(time.Second).storesN(19) // approved endpoints do not count
		},
		"events of a hold": func(s *story) {
			id := s.losesTen().hold().ID
			e := s.emitted()[0]
			got := []string{string(e.Kind), e.Subject, e.Bridge, e.Target, e.What}
			s.is("event", got, []string{"hold", id, "b", "memory", "held back: 20 deletions"})
			s.says("why", e.Why, "10 of 20 services").says("release", e.Release, "approval").is("since", e.Since.IsZero(), false)
			s.in(time.Minute).denies(id).approves(id).in(0)
			e, list := s.emitted(bridge.EventDenied)[0], s.emitted()
			s.is("denied by", e.Who, "ann").is("events", len(list), 3).is("last", list[2].Kind, bridge.EventRelease)
		},
		"a loss of more than half requires an operator": ends(11, time.Minute, "only when an operator approves it: more than half of its services would have no endpoint left"),
		"a source that shows nothing":                   ends(20, time.Minute, "only when an operator approves it: the source now offers none of the stored endpoints"),
		"without Confirm only approval ends it":         ends(10, 0, "by approval"),
		"an event where another thing ends it": func(s *story) {
			id := s.losesTen().hold().ID
			list := s.has().in(time.Minute).emitted(bridge.EventHold)
			s.is("subject", list[1].Subject, id).says("release", list[1].Release, "only when an operator approves it")
		},
		"it stays while a part is unknown": func(s *story) {
			before := s.losesTen().hold()
			s.unknown("*", errLost).in(time.Minute).same(before).unknown("*", nil).in(time.Minute)
			s.is("releases", len(s.emitted(bridge.EventRelease)), 0).unknown("*", errLost).in(time.Minute).approves()
			s.in(time.Hour).storesN(40).unknown("*", nil).in(time.Minute).storesN(20).noHold() // the decision counts already
		},
		"an id of a set that changed": func(s *story) {
			id := s.losesTen().hold().ID
			h := s.put(fleet(20, 2)[3]).in(time.Second).hold()
			if stays := id[:strings.IndexByte(id, '-')]; !strings.HasPrefix(h.ID, stays+"-") || h.ID == id || len(h.Entries) != 18 {
				s.Errorf("hold = %+v, want 18 entries and another id than %s behind its hyphen", h, id)
			}
			for _, err := range []error{s.loop.Approve(s.Context(), id, "ann"), s.loop.Deny(s.Context(), id, "ann")} {
				s.is("decision", errors.Is(err, bridge.ErrNoHold), true)
			}
			s.in(time.Hour).storesN(40)
			s.has(fleet(20, 2)...).in(time.Second).noHold()
			s.logged("mode=enforce hold="+id+" ", 1).logged("hold="+h.ID+" began_as="+id+" ", 1) // one id leads to its begin and its end
		},
		"another target has other ids": func(s *story) {
			other := newStory(s.T).bridge("b", bridge.DefaultGuard())
			other.opts.Target = "staging"
			if id := s.losesTen().hold().ID; other.losesTen().hold().ID == id {
				s.Errorf("id = %s at two targets", id)
			}
		},
		"readings over the same connection": func(s *story) {
			var asked atomic.Int32
			s.bridges[0].Recheck = func() { asked.Add(1) }
			s.losesTen()
			for range 60 {
				s.in(time.Minute).has(rest()...)
			}
			s.storesN(40).is("asked", asked.Load(), int32(12))
			s.dials(rest()...).in(59 * time.Second).storesN(40).in(32 * time.Second).storesN(20).noHold()
		},
	})
}

// TestHold_Unjudged shows that a loss counts until it was judged, however long that takes,
// and whatever is decided about others meanwhile.
func TestHold_Unjudged(t *testing.T) {
	all := fleet(100, 2)
	scopes := func(s *story, err error) *story { return s.unknown("s1*", err).unknown("s2*", err).unknown("s3*", err) }
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"a replica that leads again": func(s *story) {
			s.elected(leader(1)).has(fleet(100, 1)...).in(20 * time.Minute).becomes(standby(2))
			s.storing(stored(fleet(100, 6)...)...).has(fleet(100, 6)...).in(10 * time.Minute)
			s.has(fleet(100, 1)...).in(2 * time.Hour) // held by the other
			s.becomes(leader(3)).in(5 * time.Minute).storesN(600).hold()
		},
		"what settled before its source was away": func(s *story) {
			s.standard(100).fail(down).has(all[1:]...).in(2 * time.Minute).fail(failing(memory.OpWrite, errDown)).in(2 * time.Minute)
			s.stale(errLost).in(time.Minute).fail(nil).in(time.Minute).dials(all[1:]...).in(50 * time.Second).storesN(200)
			s.in(2 * time.Minute).storesN(198)
		},
		"a source that can report a part": func(s *story) {
			s.standard(100).loses(0, 40).in(9 * time.Minute)
			h := scopes(s, errLost).dials(all[40:]...).in(10 * time.Minute).storesN(186).hold()
			s.is("entries held", len(h.Entries), 66)
			scopes(s, nil).in(59 * time.Second).storesN(186).in(12 * time.Second).storesN(120)
		},
	})
}
