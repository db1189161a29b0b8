package lease

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// TestRecord_Format pins the stored form of the record, which replicas of other versions
// read and write during a rolling update.
func TestRecord_Format(t *testing.T) {
	const stored = `{"format":1,"leader":"a","term":1793000000000,"members":{` +
		`"a":{"beat":17,"ttl_ms":15000,"ready":1793000000000,"config":"x7k2"},"b":{"beat":3,"ttl_ms":15000,"leaving":true}}}`
	r, _, _ := parseRecord([]byte(stored), time.Unix(1e9, 0))
	want := leaseRecord{Format: 1, Leader: "a", Term: 1793000000000, Members: map[string]member{
		"a": {Beat: 17, TTL: 15000, Ready: 1793000000000, Config: "x7k2"}, "b": {Beat: 3, TTL: 15000, Leaving: true},
	}}
	if fmt.Sprint(r) != fmt.Sprint(want) {
		t.Errorf("parseRecord() = %v, want %v", r, want)
	}
	if text, err := json.Marshal(want); err != nil || string(text) != stored {
		t.Errorf("Marshal() = %s, %v, want %s", text, err, stored)
	}
}

// TestRecord_TermsAfterWipe shows that terms keep rising after the record was deleted, even
// if a replica recreates it that has just started and whose clock is a year behind.
// Fences would refuse the writes of every leader with a lower term.
func TestRecord_TermsAfterWipe(t *testing.T) {
	s := newLed()
	before := s.record.Term
	s.record, s.version = leaseRecord{}, 0
	c := &s.members[2]
	c.clock -= time.Hour * 24 * 365
	c.election = newElection("new")
	s.begins(c)
	if s.arrives(c); s.record.Term >= before {
		t.Fatalf("term = %d after %d, want an earlier one", s.record.Term, before)
	}
	s.passes(10)
	if s.record.Term <= before || s.recovers() != 1 {
		t.Errorf("term = %d after %d, %d lead, want a later one and one leader", s.record.Term, before, s.recovers())
	}
}

func TestParse(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, text := range []string{
		"", "{", "0", `"gone"`, "{}", `{"format":1,"members":[]}`, `{"format":1,"members":{"x":{"ttl_ms":-1}}}`, `{"format":1,"members":{"x":{"ttl_ms":3600001}}}`,
		fmt.Sprintf(`{"format":1,"term":%d}`, math.MaxInt64/2), `{"format":1,"term":-1}`, // no higher term is left, or it is invalid
	} {
		if _, valid, err := parseRecord([]byte(text), now); valid || err != nil {
			t.Errorf("parseRecord(%s) = %t, %v, want false, nil", text, valid, err)
		}
	}
	ahead := fmt.Sprintf(`{"format":1,"term":%d}`, now.AddDate(50, 0, 0).UnixMilli())
	if _, valid, err := parseRecord([]byte(ahead), now); !valid || err != nil {
		t.Errorf("parseRecord(%s) = %t, %v, want true, nil: a clock may be decades ahead", ahead, valid, err)
	}
}

// TestElection_Ready shows that a replica is ready for one role in one term, and only
// while it reaches its target.
func TestElection_Ready(t *testing.T) {
	a := newLed().leader()
	now, term := a.time(), a.record.Term
	for _, tt := range []struct {
		role      bridge.Role
		term      int64
		reachable bool
	}{{bridge.RoleLeader, term, true}, {bridge.RoleLeader, term, false}, {bridge.RoleLeader, term - 1, true}, {bridge.RoleStandby, term, true}} {
		a.readyFor, a.reachable = bridge.Leadership{Role: tt.role, Term: tt.term}, tt.reachable
		next, _ := a.decide(now, a.record)
		if want := tt.role == bridge.RoleLeader && tt.term == term && tt.reachable; next.ready(a.Identity) != want {
			t.Errorf("ready() of %+v = %t, want %t", tt, !want, want)
		}
	}
}

// TestRecord_Candidate shows that several replicas lead several targets, and that a ready
// replica is preferred.
func TestRecord_Candidate(t *testing.T) {
	r := leaseRecord{Term: 1, Members: map[string]member{"a": {Ready: 1}, "b": {Ready: 1}, "c": {}, "d": {Ready: 1, Leaving: true}}}
	led := make(map[string]int)
	for n := range 100 {
		led[r.candidate(string(rune('A'+n)))]++
	}
	if len(led) != 2 || led["a"] < 25 || led["b"] < 25 {
		t.Errorf("of 100 targets they lead %v, want a and b a share each", led)
	}
}

// FuzzRecord shows that no record crashes a replica, that a replica makes only a member the
// leader, and that terms never fall.
func FuzzRecord(f *testing.F) {
	f.Add(`{"format":1,"leader":"gone","term":3,"members":{"a":{"beat":17,"ttl_ms":15000,"ready":3},"b":{"beat":3}}}`)
	f.Add(`{"format":1,"leader":"a","members":{"a":{"leaving":true},"":{}}}`)
	f.Add(`{"format":1,"leader":"","members":null}`)
	f.Add(`{"format":1,"leader":"gone","term":9223372036854775807,"members":{"a":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s := newScene()
		read, valid, err := parseRecord([]byte(text), time.Unix(1e9, 0))
		if err != nil || !valid || len(read.Members) > 100 {
			return
		}
		s.record, s.version = read, 1
		a := &s.members[0]
		for range 2 * int(MaxTTL/sceneStep) { // until all members in it are dead
			a.clock += sceneStep
			s.begins(a)
			s.arrives(a)
		}
		if r := s.record; r.Term < read.Term || !a.leads() || len(r.Members) != 1 {
			t.Errorf("record = %+v after term %d, want only a to lead, in no earlier term", r, read.Term)
		}
	})
}
