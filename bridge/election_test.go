package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An election is one whose outcome a test sets.
type election struct {
	changed chan struct{}

	mu    sync.Mutex
	now   bridge.Leadership
	ready []bridge.Leadership // as told
}

func newElection(l bridge.Leadership) *election {
	return &election{changed: make(chan struct{}, 1), now: l}
}

// Leadership answers as a lease does: what was won ends with its time.
func (e *election) Leadership() bridge.Leadership {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.now
	if l.Role == bridge.RoleLeader && !l.Until.IsZero() && !time.Now().Before(l.Until) {
		l.Role = bridge.RoleStandby
	}
	return l
}

func (e *election) Changed() <-chan struct{} { return e.changed }

func (e *election) Ready(l bridge.Leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready = append(e.ready, l)
}

func (e *election) lastTold() bridge.Leadership {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready[len(e.ready)-1]
}

// becomes changes the leadership before anybody is told.
func (e *election) becomes(l bridge.Leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = l
}

// set changes the leadership and tells.
func (e *election) set(l bridge.Leadership) {
	e.becomes(l)
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

func leader(term int64) bridge.Leadership {
	return bridge.Leadership{Role: bridge.RoleLeader, Term: term, Leader: "me"}
}

func standby(term int64) bridge.Leadership {
	return bridge.Leadership{Role: bridge.RoleStandby, Term: term, Leader: "other"}
}

// publishing is a target in which each replica publishes for itself.
type publishing struct{ session }

func (publishing) Shared() {}

// elected returns a story of one of several replicas.
func elected(t *testing.T, l bridge.Leadership, guard bridge.Guard) (*story, *election) {
	t.Helper()
	st, e := newStory(t).bridge("b", guard), newElection(l)
	st.opts.Election = e
	return st, e
}

func TestElection(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"who leads anew, after another did, writes nothing before it has read anew": func(t *testing.T) {
			s, e := elected(t, leader(1), speed)
			s.starts().has(service("a", "10.0.0.1:80")).in(time.Second).holds("a 10.0.0.1:80")
			e.becomes(leader(3))
			s.target.Set(mine("a", "10.0.0.2:80")) // by who led meanwhile
			s.has(service("a", "10.0.0.1:80", "10.0.0.3:80")).in(time.Second).holds("a 10.0.0.1:80", "a 10.0.0.3:80")
			if reads, writes := s.when(memory.OpRead, "a"), s.when(memory.OpWrite, "a"); len(reads) != 1 || reads[0] != time.Second || writes[1] < reads[0] {
				t.Errorf("read at %v, written at %v", reads, writes)
			}
		},
		"a standby reads and does not write": func(t *testing.T) {
			s, _ := elected(t, standby(1), speed)
			s.holding(mine("a", "10.0.0.1:80"), mine("left", "10.0.0.7:80")).starts()
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.3:80")).in(time.Hour)
			s.holds("a 10.0.0.1:80", "left 10.0.0.7:80")
			s.reason("a", bridge.ReasonStandby, "other leads").reason("b", bridge.ReasonStandby, "other leads")
			if s.writes() != 0 || len(s.when(memory.OpRead, "a")) == 0 {
				t.Errorf("%+v", s.target.Counts())
			}
			s.noHold()
		},
		"what the leader writes is no complaint of a standby": func(t *testing.T) {
			s, _ := elected(t, standby(1), speed)
			events := listens(s)
			s.holding(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.2:80")).starts().has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Minute)
			s.table().Put(service("a", "10.0.0.3:80"))
			s.in(time.Second)
			s.target.Set(mine("a", "10.0.0.3:80"))
			s.target.Drop(group("a"), "10.0.0.1:80")
			s.in(time.Hour)
			if len(*events) != 0 || len(s.when(memory.OpRead, "a")) < 2 {
				t.Errorf("it read %d times, and reported %+v", len(s.when(memory.OpRead, "a")), *events)
			}
		},
		"what is taken over is read once more before it is written": func(t *testing.T) {
			s, e := elected(t, standby(1), speed)
			s.starts().has(service("a", "10.0.0.1:80")).in(time.Second)
			before := len(s.when(memory.OpRead, "a"))
			s.target.Set(mine("a", "10.0.0.1:80")) // by the leader
			e.set(leader(2))
			s.in(time.Second)
			if got := len(s.when(memory.OpRead, "a")); got != before+1 || s.writes() != 0 {
				t.Errorf("%d reads, %d writes", got-before, s.writes())
			}
			s.reason("a", bridge.ReasonSynced, "")
		},
		"a take-over withdraws nothing, and leftovers settle anew": func(t *testing.T) {
			s, e := elected(t, standby(1), timed())
			s.holding(mine("a", "10.0.0.1:80"), mine("left", "10.0.0.7:80")).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Hour)
			e.set(leader(2))
			s.in(59 * time.Second).holdsN(2)
			s.in(2 * time.Second).holds("a 10.0.0.1:80")
		},
		"what the source took back before the take-over goes as the guard says": func(t *testing.T) {
			s, e := elected(t, standby(1), bridge.DefaultGuard())
			s.holding(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.2:80")).starts()
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Minute)
			s.table().Put(service("a", "10.0.0.1:80"))
			s.in(time.Minute).holdsN(2)
			e.set(leader(2))
			s.in(time.Second).holds("a 10.0.0.1:80")
		},
		"who leads no more writes no more": func(t *testing.T) {
			s, e := elected(t, leader(1), speed)
			s.starts().has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80")).in(time.Second)
			e.set(standby(2))
			s.in(0).has(service("a", "10.0.0.9:80"), service("b", "10.0.0.8:80")).in(time.Hour)
			s.holds("a 10.0.0.1:80", "b 10.0.0.2:80").reason("a", bridge.ReasonStandby, "other leads")
		},
		"nothing is written after the time of a lease, whatever nobody said": func(t *testing.T) {
			s, _ := elected(t, bridge.Leadership{Role: bridge.RoleLeader, Term: 1, Leader: "me", Until: time.Now().Add(10 * time.Second)}, speed)
			s.starts().has(service("a", "10.0.0.1:80")).in(11 * time.Second)
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Hour)
			s.holds("a 10.0.0.1:80").reason("a", bridge.ReasonStandby, "")
		},
		"a call under way ends with the time of the lease": func(t *testing.T) {
			until := time.Now().Add(10 * time.Second)
			s, _ := elected(t, bridge.Leadership{Role: bridge.RoleLeader, Term: 1, Until: until}, speed)
			var ended time.Time
			s.make()
			s.starts(hanging{session{s.target}, func() { ended = time.Now() }})
			s.has(service("a", "10.0.0.1:80")).in(time.Minute)
			if !ended.Equal(until) {
				t.Errorf("it ended %v after the start, want %v", ended.Sub(s.begin), until.Sub(s.begin))
			}
		},
		"a fenced write is no conflict: it is reported, and not repeated in haste": func(t *testing.T) {
			s, _ := elected(t, leader(1), speed)
			s.starts().fail(failing(memory.OpWrite, fmt.Errorf("term 1: %w", registry.ErrFenced)))
			s.has(service("a", "10.0.0.1:80")).in(time.Minute)
			s.holds().reason("a", bridge.ReasonRetrying, "another replica")
			if n := len(s.when(memory.OpWrite, "a")); n > 8 {
				t.Errorf("%d attempts", n)
			}
		},
		"ready is told when everything was read, or written, for each term": func(t *testing.T) {
			s, e := elected(t, standby(1), speed)
			s.starts().in(time.Minute)
			if got := e.lastTold(); got != (bridge.Leadership{}) {
				t.Errorf("ready %+v before the source was complete", got)
			}
			s.has(fleet(10, 1)...).in(time.Second)
			if e.lastTold() != standby(1) {
				t.Errorf("ready %+v", e.lastTold())
			}
			e.set(standby(2))
			if s.in(time.Second); e.lastTold() != standby(2) {
				t.Errorf("ready %+v once another leads", e.lastTold())
			}
			s.fail(failing(memory.OpWrite, errDown))
			e.set(leader(3))
			if s.in(time.Minute); e.lastTold() == leader(3) {
				t.Error("ready although nothing could be written")
			}
			s.fail(nil)
			if s.in(time.Minute); e.lastTold() != leader(3) {
				t.Errorf("ready %+v", e.lastTold())
			}
			s.holdsN(10)
		},
		"who cannot tell what is claimed is not ready": func(t *testing.T) {
			s, e := elected(t, standby(1), speed)
			s.starts().has(fleet(10, 1)...).in(time.Second)
			s.table().Stale(errLost)
			if s.in(time.Second); e.lastTold() != (bridge.Leadership{}) {
				t.Errorf("ready %+v with a stale source", e.lastTold())
			}
			s.has(fleet(10, 1)...)
			if s.in(time.Second); e.lastTold() != standby(1) {
				t.Errorf("ready %+v once the source is back", e.lastTold())
			}
		},
		"a target without any group is ready too": func(t *testing.T) {
			s, e := elected(t, leader(1), speed)
			if s.starts().has().in(time.Second); e.lastTold() != leader(1) {
				t.Errorf("ready %+v", e.lastTold())
			}
		},
		"in a shared target a standby publishes too": func(t *testing.T) {
			s, e := elected(t, standby(1), speed)
			s.make()
			s.starts(publishing{session{s.target}})
			s.has(service("a", "10.0.0.1:80")).in(time.Second).holds("a 10.0.0.1:80")
			e.set(leader(2))
			s.in(time.Second).holds("a 10.0.0.1:80")
			e.set(standby(3))
			s.has(service("a", "10.0.0.2:80")).in(time.Hour).holds("a 10.0.0.2:80")
		},
		"what is taken over while a reading is under way is read again": func(t *testing.T) {
			s, e := elected(t, standby(1), speed)
			s.hooks.Delay = time.Second
			s.starts().has(service("a", "10.0.0.1:80")).in(1500 * time.Millisecond)
			s.target.Set(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.5:80"))
			e.set(leader(2))
			s.in(20 * time.Second).holds("a 10.0.0.1:80")
		},
	})
}

// hanging is a target whose writes last until they are given up.
type hanging struct {
	session
	ended func()
}

func (h hanging) Write(ctx context.Context, _ registry.Change) error {
	<-ctx.Done()
	h.ended()
	return errors.Join(errDown, ctx.Err())
}
