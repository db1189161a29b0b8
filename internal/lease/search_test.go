package lease

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// A scene is one state of a search: the elections of three replicas, and their lease
// record. The contents of records and elections are never changed in place, so that a
// copy of the values is a copy of the scene.
type scene struct {
	record  leaseRecord
	version int // 0 if there is no record
	members []actor
	led     map[int64]string // the leader of each term
	path    []string         // the events up to here
	leading []string         // the current leaders
	wrong   string           // a violation that happened
}

const (
	sceneTTL  = 15 * time.Second
	sceneStep = sceneTTL / 3 // how much time passes in one event
)

// An actor is one replica with its own clock, and with a loop that is ready for its role at
// its next poll.
type actor struct {
	election

	clock  time.Duration
	state  running
	away   bool // it cannot reach its target
	behind bool // its clock stopped since it renewed
	slow   bool // its clock loses a quarter
	sent   *sentWrite
	late   *sentWrite // a write that it has given up
}

type running string

const (
	runs      running = ""
	paused    running = "paused"    // its clock continues
	suspended running = "suspended" // its clock stops
)

// sentWrite is a record under way to the store.
type sentWrite struct {
	record  leaseRecord
	version int // the version that it replaces
	at      time.Time
}

func newScene() *scene {
	s := &scene{led: map[int64]string{}}
	for _, name := range []string{"a", "b", "c"} {
		s.members = append(s.members, actor{election: newElection(name), slow: name == "a"})
	}
	return s
}

func newElection(name string) election {
	return New(Options{Target: "zk", Identity: name, TTL: sceneTTL}).election
}

func (s *scene) clone() *scene {
	c := *s
	c.members, c.path, c.led = slices.Clone(s.members), slices.Clone(s.path), maps.Clone(s.led)
	return &c
}

func (a *actor) time() time.Time { return time.Unix(1e9, 0).Add(a.clock) }
func (a *actor) leads() bool     { return a.leadership(a.time()).Role == bridge.RoleLeader }

// leader returns the replica that leads, or the first one if none does.
func (s *scene) leader() *actor {
	return &s.members[max(0, slices.IndexFunc(s.members, func(a actor) bool { return a.leads() }))]
}

// begins lets a replica become ready for its role, read the record, and send its
// decision.
func (s *scene) begins(a *actor) {
	if a.state != runs || a.sent != nil {
		return
	}
	a.readyFor = a.leadership(a.time())
	r := s.record
	if s.version == 0 {
		r = a.recreate(a.time())
	}
	a.reachable = !a.away
	if next, write := a.decide(a.time(), r); write {
		a.sent = &sentWrite{next, s.version, a.time()}
	}
	s.look()
}

// arrives brings a write to the store, which notifies the writer.
func (s *scene) arrives(a *actor) {
	w := a.sent
	if a.sent = nil; w == nil {
		return
	}
	if s.store(w) {
		a.behind = false
		a.record, a.renewedAt = w.record, w.at
	}
	s.look()
}

// store brings a write to the store.
func (s *scene) store(w *sentWrite) bool {
	if w.version != s.version {
		return false
	}
	s.record, s.version = w.record, s.version+1
	return true
}

// fails makes a replica give up a write, which may arrive later.
func (a *actor) fails() {
	if a.sent != nil {
		a.sent, a.late = nil, a.sent
	}
}

// passes lets time pass, and then lets all running replicas poll.
func (s *scene) passes(steps int) {
	for range steps {
		for i := range s.members {
			a := &s.members[i]
			a.fails()
			switch {
			case a.state == suspended:
				a.behind = true
			case a.slow:
				a.clock += sceneStep * 3 / 4
			default:
				a.clock += sceneStep
			}
		}
		for i := range s.members {
			s.begins(&s.members[i])
			s.arrives(&s.members[i])
		}
	}
}

// look records violations: two leaders at once, except for one whose clock stopped, and
// two leaders in one term, since terms fence writes.
func (s *scene) look() {
	s.leading = nil
	for i := range s.members {
		a := &s.members[i]
		if !a.leads() {
			continue
		}
		if !a.behind && a.state != suspended {
			s.leading = append(s.leading, a.Identity)
		}
		if first, known := s.led[a.record.Term]; known && first != a.Identity {
			s.wrong = fmt.Sprintf("%s and %s lead in one term", first, a.Identity)
		}
		s.led[a.record.Term] = a.Identity
	}
	if len(s.leading) > 1 {
		s.wrong = fmt.Sprintf("%v lead at once", s.leading)
	}
}

// An event is one possible next step.
type event struct {
	name string
	does func(*scene)
}

// events returns the possible next steps of a scene.
func (s *scene) events() []event {
	all := []event{{"time", func(s *scene) { s.passes(1) }}}
	for n, a := range s.members {
		on := func(may bool, what string, does func(*scene, *actor)) {
			if may {
				all = append(all, event{a.Identity + " " + what, func(s *scene) { does(s, &s.members[n]) }})
			}
		}
		on(a.state == runs && a.sent == nil, "turns", func(s *scene, a *actor) { s.begins(a); s.arrives(a) })
		on(a.state == runs && a.sent == nil, "sends", (*scene).begins)
		on(a.sent != nil, "is answered", (*scene).arrives)
		on(a.sent != nil, "gets no answer", func(_ *scene, a *actor) { a.fails() })
		on(a.late != nil, "is written late", func(s *scene, a *actor) { s.store(a.late); a.late = nil })
		on(a.state == runs, "is paused", func(_ *scene, a *actor) { a.state = paused })
		on(a.state == runs, "is suspended", func(_ *scene, a *actor) { a.state = suspended })
		on(a.state != runs, "continues", func(_ *scene, a *actor) { a.state = runs })
		on(len(a.Identity) == 1 && a.state == runs, "crashes", func(_ *scene, a *actor) { // its restart is another event
			*a = actor{election: newElection(a.Identity + "'"), clock: a.clock, slow: a.slow, state: paused}
		})
		on(!a.leaving && a.state == runs, "leaves", func(_ *scene, a *actor) { a.leaving = true })
		on(true, "loses or regains its target", func(_ *scene, a *actor) { a.away = !a.away })
	}
	return all
}

// recovers returns the number of leaders once all failures are over.
func (s *scene) recovers() int {
	c := s.clone()
	for i := range c.members {
		c.members[i].state, c.members[i].away, c.members[i].leaving = runs, false, false
	}
	c.passes(4 * int(sceneTTL/sceneStep))
	return len(c.leading)
}

// key returns the key of a scene. Two scenes with the same key have the same future.
func (s *scene) key() string {
	k := fmt.Appendf(nil, "%s %d %d", s.record.Leader, s.record.Term, s.version)
	for i := range s.members {
		a := &s.members[i]
		since := func(at time.Time) time.Duration { return max(at.Sub(a.time()), -sceneTTL) }
		k = fmt.Appendf(k, "|%s %s %t %t %t %d %d %d %d %v", a.Identity, a.state, a.away, a.behind, a.leaving,
			since(a.readAt), since(a.renewedAt), a.unreadySince.Sub(a.time()), a.patience, a.readyFor)
		for _, r := range []leaseRecord{a.record, s.record} {
			for _, name := range slices.Sorted(maps.Keys(r.Members)) {
				k = fmt.Appendf(k, ",%s %v %d", name, r.Members[name], since(a.lastChange[name]))
			}
		}
		for i, w := range []*sentWrite{a.sent, a.late} {
			if w != nil {
				k = fmt.Appendf(k, ">%d %d %s %d %d", i, w.version-s.version, w.record.Leader, w.record.Term, since(w.at))
			}
		}
	}
	return string(k)
}

// search visits every order of events up to a depth, each state once. It returns the first
// state with a violation, and the number of visited states.
func search(from *scene, depth int) (found string, states int) {
	known := map[string]bool{from.key(): true}
	level := []*scene{from}
	for range depth {
		var next []*scene
		for _, s := range level {
			for _, e := range s.events() {
				c := s.clone()
				c.path = append(c.path, e.name)
				if e.does(c); c.wrong != "" {
					return strings.Join(c.path, ", ") + ": " + c.wrong, len(known)
				}
				if k := c.key(); !known[k] {
					known[k] = true
					next = append(next, c)
				}
			}
		}
		level = next
	}
	for i, s := range level {
		if i%29 == 0 && s.recovers() != 1 { // this takes a hundred times as long as an event
			return fmt.Sprintf("%s: in the end %d lead", strings.Join(s.path, ", "), s.recovers()), len(known)
		}
	}
	return "", len(known)
}

// TestElection_EveryOrder visits every order of events of three replicas. In the gate the
// depth is smaller.
func TestElection_EveryOrder(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*scene){
		"no record": func(s *scene) { *s = *newScene() },
		"a leader":  func(*scene) {},
		"a leader that is about to expire": func(s *scene) {
			s.leader().state = paused
			s.passes(2)
		},
		"a suspended leader, and another leads": func(s *scene) {
			s.leader().state = suspended
			s.passes(4)
		},
		"a leader hands over": func(s *scene) {
			s.leader().leaving = true
			s.begins(s.leader())
		},
		"a leader long without its target": func(s *scene) {
			s.leader().away = true
			s.passes(23)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLed()
			begin(s)
			depth := 4
			if testing.Short() {
				depth = 3
			}
			found, states := search(s, depth)
			if found != "" || s.wrong != "" {
				t.Error(found, s.wrong)
			}
			t.Log(states, "states")
		})
	}
}

// newLed returns a scene with a leader.
func newLed() *scene {
	s := newScene()
	s.passes(10)
	return s
}
