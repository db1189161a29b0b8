package lease

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// settled returns a scene in which somebody leads, and has written.
func settled(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, rules{})
	for range 10 {
		s.passes()
	}
	a := s.leader()
	a.sends()
	a.arrives()
	return s
}

// TestATermThatNoVersionWritesCostsItsRecord shows that there is a leader, who
// gets past the fence of a target, after somebody wrote a term that leaves none
// above it, and that nobody takes such a term over.
func TestATermThatNoVersionWritesCostsItsRecord(t *testing.T) {
	for _, forged := range []int64{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2, math.MinInt64} {
		s := settled(t)
		spoiled := s.record
		spoiled.Term = forged
		data, err := json.Marshal(spoiled)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.put(data)
		for range 10 {
			s.passes()
		}
		s.leader().start(t, "new") // so that another has to lead
		if why := s.stuck(); why != "" {
			t.Errorf("term %d: %s", forged, why)
		}
		for _, a := range s.members {
			if term := a.Leadership().Term; term < 0 || term > a.time().Add(time.Hour).UnixMilli() {
				t.Errorf("term %d: %s is in term %d", forged, a.opts.Identity, term)
			}
		}
	}
}

// TestATermAheadOfTheClockIsTaken shows that a replica whose clock is decades
// behind that of who made the record follows it.
func TestATermAheadOfTheClockIsTaken(t *testing.T) {
	s := newScene(t, rules{})
	s.members[1].clock = 50 * 365 * 24 * time.Hour
	s.members[1].takesTurn()
	ahead := s.record.Term
	for range 10 {
		s.passes()
	}
	if why := s.stuck(); why != "" {
		t.Error(why)
	}
	for _, a := range s.members {
		if term := a.Leadership().Term; term < ahead {
			t.Errorf("%s is in term %d, the record was made with %d", a.opts.Identity, term, ahead)
		}
	}
}

// TestAWipedRecordGetsTermsAboveTheOldOnes shows that a record which was deleted
// fences no leader out for ever, though a replica made it anew that has just
// started and whose clock is a year behind.
func TestAWipedRecordGetsTermsAboveTheOldOnes(t *testing.T) {
	s := settled(t)
	before := s.record.Term
	s.data, s.record, s.version = nil, record{}, 0
	c := s.members[2]
	c.clock -= time.Hour * 24 * 365
	c.start(t, "new")
	c.takesTurn()
	if now := s.record.Term; now >= before {
		t.Fatalf("term %d after %d: nothing to mend", now, before)
	}
	for range 10 {
		s.passes()
	}
	if why := s.stuck(); why != "" {
		t.Error(why)
	}
}

// TestCandidates shows that several targets are led by several replicas, and
// that one that is ready comes before others.
func TestCandidates(t *testing.T) {
	r := record{Term: 1, Members: map[string]member{"a": {Ready: 1}, "b": {Ready: 1}, "c": {}, "d": {Ready: 1, Leaving: true}}}
	led := make(map[string]int)
	for n := range 100 {
		led[r.candidate(string(rune('A'+n)))]++
	}
	if len(led) != 2 || led["a"] < 25 || led["b"] < 25 {
		t.Errorf("of 100 targets they lead %v", led)
	}
}
