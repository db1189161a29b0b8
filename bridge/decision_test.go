package bridge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// replicas are several processes that see the same source.
type replicas []*story

func (r replicas) has(services ...*registry.Service) replicas {
	for _, s := range r {
		s.has(services...)
	}
	return r
}

// losesTen has ten of the services go, and returns the id of the hold of the leader.
func (r replicas) losesTen() string {
	r[0].Helper()
	for _, s := range r {
		s.loses(0, 10)
	}
	return r[0].in(time.Minute).hold().ID
}

// takesOver makes the second replica the leader instead of the first.
func (r replicas) takesOver() { r[0].becomes(standby(2)); r[1].becomes(leader(2)) }

// pair returns two replicas over one target that keeps records, of which the first
// leads. The clock of the second may be ahead.
func (s *story) pair(ahead time.Duration) (a, b *story, both replicas) {
	s.Helper()
	a, b = s.recorded().elected(leader(1)), s.anotherProcess().elected(standby(1))
	b.records.ahead = ahead
	both = replicas{a, b}.has(fleet(20, 2)...)
	a.in(10 * time.Minute)
	return a, b, both
}

// slowly makes every read take a second.
func slowly(op memory.Op, _ registry.Group) error {
	if op == memory.OpRead {
		time.Sleep(time.Second)
	}
	return nil
}

func TestDecision_Restart(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"an approval counts for one loss": func(s *story) {
			s = s.recorded().losesTen().approves().in(time.Minute).storesN(20)
			s.has(fleet(20, 2)...).in(time.Minute).storesN(40)
			s.again().has(rest()...).in(50 * time.Second).storesN(40)
		},
		"a denial counts for one loss": func(s *story) {
			s = s.recorded().losesTen().denies().in(time.Minute)
			s.has(fleet(20, 2)...).in(time.Minute).noHold().storesN(40)
			s.again().has(append([]*registry.Service{service("s0", "10.0.0.1:80")}, fleet(20, 2)[1:]...)...).in(2 * time.Hour).storesN(39)
		},
		"a denial ends for entries that are claimed again": func(s *story) {
			s = s.recorded().losesTen().denies().in(10 * time.Second).again()
			s.has(rest()...).in(3 * time.Hour).storesN(40).denied(20) // never confirmed either
			s.put(fleet(20, 2)[3]).in(time.Minute).denied(18).is("decisions", s.records.decisions(), 0)
		},
		"an approval applies only to its set": func(s *story) {
			s.recorded().losesTen().approves().in(time.Minute).storesN(20).has(fleet(20, 2)...).in(3 * time.Hour).storesN(40)
			s.is("decisions", s.records.decisions(), 0).fail(slowly).stop()
			s.again().standard(20).loses(0, 10).in(time.Minute).storesN(40).hold()
		},
		"without a hold no record is read": func(s *story) {
			s.recorded().has(fleet(20, 2)...).in(3*time.Hour).between("reads", s.records.reads, 1, 4) // at the start
		},
		"a hold is listed as before": func(s *story) {
			before := s.recorded().standard(20).loses(0, 14).in(2 * time.Minute).hold()
			s = s.again().unknown("*", errLost).has(fleet(20, 2)[14:]...).in(20 * time.Second).same(before)
			s.unknown("*", nil).in(time.Second).denies().in(time.Second)
			s = s.again().unknown("*", errLost).has(fleet(20, 2)[14:]...).in(20 * time.Second).denied(28)
			s.is("id", s.hold().ID, before.ID)
		},
	})
}

func TestDecision_Records(t *testing.T) {
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"a decision is stored later": func(s *story) {
			s.recorded().standard(20).loses(0, 10).in(11*time.Second).loses(10, 8).in(0).records.away.Store(true)
			for _, h := range s.status().Holds {
				err := s.loop.Deny(s.Context(), h.ID, "ann")
				s.is("unrecorded", errors.Is(err, bridge.ErrUnrecorded), true).says("Deny()", err.Error(), "down")
			}
			s.in(time.Minute).records.away.Store(false)
			s.in(10*time.Second).is("decisions", s.records.decisions(), 1)
		},
		"a refused record costs itself": func(s *story) {
			a, b, both := s.pair(0)
			a.records.deny("denied")
			a.records.put("decisions", "denied", "{}")
			b.approves(both.losesTen())
			a.in(time.Minute).storesN(20).noHold().logged("not authenticated", 1)
		},
		"a text that is not a record is named": func(s *story) {
			s.recorded().records.put("guard", "b-00", "no JSON")
			s.has(service("a", "10.0.0.1:80")).in(time.Second).stores("a 10.0.0.1:80").says("log", s.log.String(), "b-00")
		},
		"a refused decision keeps no other": func(s *story) {
			s.recorded().elected(leader(1)).standard(20).loses(0, 10).in(0)
			id := s.hold().ID
			s.records.deny(id)
			for _, h := range s.in(11*time.Second).loses(10, 8).in(time.Second).status().Holds {
				s.is("unrecorded", errors.Is(s.loop.Deny(s.Context(), h.ID, "ann"), bridge.ErrUnrecorded), h.ID == id)
			}
			s.in(10*time.Second).is("decisions", s.records.decisions(), 1).denied(36) // it counts in its process
		},
		"records keep no group waiting": func(s *story) {
			s.opts.Workers = 1
			s.recorded().records.late.Store(int64(never))
			s.starts().in(time.Second).has(service("a", "10.0.0.1:80")).in(4 * time.Second).stores("a 10.0.0.1:80")
		},
	})
}

func TestDecision_Replicas(t *testing.T) {
	clock := func(ahead time.Duration) func(*story) {
		return func(s *story) {
			a, b, both := s.pair(ahead)
			id := both.losesTen()
			a.in(4 * time.Minute)
			b.is("hold", b.hold().ID, id).approves(id)
			a.in(time.Minute).storesN(20).noHold()
			b.in(10*time.Minute).noHold().is("decisions", a.records.decisions(), 0)
		}
	}
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"a clock an hour behind":      clock(-time.Hour),
		"a clock six minutes behind":  clock(-6 * time.Minute),
		"a clock three minutes ahead": clock(3 * time.Minute),
		"a clock an hour ahead":       clock(time.Hour),
		"who leads no more has no hold": func(s *story) {
			s.recorded().elected(leader(1)).losesTen().in(time.Minute).becomes(standby(2)).in(0)
			e := s.emitted()
			s.is("last event", e[len(e)-1].Kind, bridge.EventRelease).says("why", e[len(e)-1].Why, "another replica")
		},
		"any replica shows and decides a hold": func(s *story) {
			a, b, both := s.pair(0)
			id := both.losesTen()
			b.is("hold", []any{b.hold().ID, len(b.hold().Entries)}, []any{id, 20}).denies(id)
			a.in(10 * time.Second).denied(20)
			b.approves(id)
			a.in(time.Minute).storesN(20).noHold()
			b.noHold()
		},
		"a denial of a standby that publishes": func(s *story) {
			s.recorded().elected(leader(1)).starts(sharedRecorder{s.records}).losesTen().denies().in(time.Minute)
			for i := 1; i < 10; i++ {
				s.put(fleet(20, 2)[i])
			}
			s.in(2 * time.Hour).storesN(40).becomes(standby(2)).in(time.Hour).storesN(40).hold()
		},
		"a denial at a standby that takes over": func(s *story) {
			a, b, both := s.pair(0)
			id := both.losesTen()
			b.in(6 * time.Second)
			a.stop() // the leader dies
			b.denies(id).in(7 * time.Second)
			both.takesOver()
			b.in(2 * time.Minute).storesN(40).denied(20)
		},
		"newer records are not replaced": func(s *story) {
			a, b, both := s.pair(0)
			a.records.away.Store(true)
			both.losesTen()
			both.takesOver()
			b.in(2 * time.Minute).denies().in(time.Minute)
			a.records.away.Store(false)
			b.in(10 * time.Minute).becomes(standby(3))
			a.becomes(leader(3)).in(2 * time.Minute).denied(20)
		},
	})
}

// TestEngine_Restart shows that the baseline of an endpoint that was lost while the bridge was
// down does not depend on the order of the restart.
func TestEngine_Restart(t *testing.T) {
	kept := service("a", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"the source reports first, or the target": func(s *story) {
			s.storing(stored(kept)...).storing(mine("a", "10.0.0.9:80")).reports(kept).starts().in(2 * time.Minute).noHold().storesN(4)
			s.storing(mine("a", "10.0.0.9:80"))
			s.again().starts().in(time.Minute).has(kept).in(2 * time.Minute).noHold().storesN(4) // the target does
		},
		"all is replaced, and records are late": func(s *story) {
			for n := range 20 {
				s.storing(mine(fmt.Sprint("s", n), "10.9.0.1:80"), mine(fmt.Sprint("s", n), "10.9.0.2:80"))
			}
			s.recorded().records.late.Store(int64(10 * time.Second))
			s.reports(fleet(20, 2)...).starts().in(2 * time.Minute).noHold().storesN(40)
		},
		"what went before it counts": func(s *story) {
			s.recorded().has(fleet(10, 1)...).in(10*time.Minute).loses(0, 3).in(time.Minute).storesN(7)
			s = s.again()
			s.records.late.Store(int64(never)) // and it cannot be read
			s.has(fleet(10, 1)[3:]...).in(time.Minute).loses(3, 2).in(10 * time.Minute).storesN(7)
		},
		"a first reading fails": func(s *story) {
			s.storing(stored(fleet(10, 5)...)...).fail(func(op memory.Op, _ registry.Group) error {
				if op == memory.OpRead && time.Since(s.begin) < 30*time.Second {
					return errDown
				}
				return nil
			})
			s.has(fleet(10, 1)...).in(20 * time.Second).put(fleet(11, 1)[10]).in(20 * time.Minute).hold()
			s.between("entries", len(s.target.Entries()), 50, 51)
		},
	})
}

// FuzzDecision shows that no text among the records of an owner releases a hold, unless it
// approves exactly that hold, and that none shows a hold that no replica has.
func FuzzDecision(f *testing.F) {
	f.Add("", `{"approved":true,"who":"ann","at":"2000-01-01T00:00:00Z"}`)
	f.Add("", `{"approved":true,"who":"ann","at":"9999-01-01T00:00:00Z"}`)
	f.Add("", `{"approved":"yes"}`)
	f.Add("another", `{"approved":true,"who":"ann","at":"2000-01-01T00:10:00Z"}`)
	f.Add("", `{"approved":false,"who":"\u001b[2J"}`)
	f.Add("x", `[[[`)
	f.Fuzz(func(t *testing.T, name, text string) {
		synctest.Test(t, func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).recorded().losesTen()
			id := s.hold().ID
			for _, kind := range []string{"decisions", "holds"} {
				for _, n := range []string{name, id} {
					s.records.put(kind, n, text)
				}
			}
			var decision struct {
				Approved bool      `json:"approved"`
				Who      string    `json:"who"`
				At       time.Time `json:"at"`
			}
			approved := json.Unmarshal([]byte(text), &decision) == nil && decision.Approved
			if s.in(10 * time.Second); approved {
				s.noHold()
				return
			}
			s.storesN(40).is("id", s.hold().ID, id)
		})
	})
}
