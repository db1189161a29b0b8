package lease

import (
	"testing"
	"time"
)

// TestAWipedRecordGetsTermsAboveTheOldOnes shows that a record which was deleted
// fences no decider out for ever, though a replica made it anew that has just
// started and whose clock is a year behind.
func TestAWipedRecordGetsTermsAboveTheOldOnes(t *testing.T) {
	s := newScene(t, rules{})
	for range 10 {
		s.passes()
	}
	for i := range sceneShards {
		for _, a := range s.members {
			if a.sends(i); a.sent[i] != nil {
				a.arrives(i)
			}
		}
	}
	before := s.table.Shards[0].Term
	s.record, s.table, s.version = nil, table{}, 0
	c := s.members[2]
	c.clock -= time.Hour * 24 * 365
	c.start(t, "new")
	c.takesTurn()
	if now := s.table.Shards[0].Term; now >= before {
		t.Fatalf("term %d after %d: nothing to mend", now, before)
	}
	for range 10 {
		s.passes()
	}
	if why := s.stuck(); why != "" {
		t.Error(why)
	}
}
