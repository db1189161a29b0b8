package lease

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// TestATermThatNoVersionWritesCostsItsRecord shows that replicas decide on and
// get past the fences of a target after somebody wrote terms that leave none
// above them, and that none of them takes such terms over.
func TestATermThatNoVersionWritesCostsItsRecord(t *testing.T) {
	for _, forged := range []int64{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2, math.MinInt64} {
		s := newScene(t, rules{})
		for range 10 {
			s.passes()
		}
		spoiled := s.table.clone()
		for i := range spoiled.Shards {
			spoiled.Shards[i].Term = forged
		}
		record, err := spoiled.encode()
		if err != nil {
			t.Fatal(err)
		}
		s.record, s.version = record, s.version+1
		for range 10 {
			s.passes()
		}
		s.members[1].start(t, "new") // whose shards have to move
		if why := s.stuck(); why != "" {
			t.Errorf("term %d: %s", forged, why)
		}
		for _, a := range s.members {
			for i := range sceneShards {
				if term := a.Stand(i).Term; term < 0 || term > a.time().Add(time.Hour).UnixMilli() {
					t.Errorf("term %d: %s stands in term %d of shard %d", forged, a.opts.Identity, term, i)
				}
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
	ahead := s.table.Shards[0].Term
	for range 10 {
		s.passes()
	}
	if why := s.stuck(); why != "" {
		t.Error(why)
	}
	for _, a := range s.members {
		if term := a.Stand(0).Term; a.Stand(0).Role != bridge.RoleAway && term < ahead {
			t.Errorf("%s stands in term %d, the record was made with %d", a.opts.Identity, term, ahead)
		}
	}
	if !strings.Contains(string(s.record), `"format":1`) {
		t.Errorf("%s", s.record)
	}
}
