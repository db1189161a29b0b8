package lease

import (
	"testing"
	"time"
)

// FuzzRecord shows that no record brings a replica down, that whatever stands in
// one a replica makes none but a member the leader, and that terms never fall.
func FuzzRecord(f *testing.F) {
	f.Add(`{"format":1,"leader":"gone","term":3,"members":{"a":{"beat":17,"ttl_ms":15000,"ready":3},"b":{"beat":3}}}`)
	f.Add(`{"format":1,"leader":"a","members":{"a":{"leaving":true},"":{}}}`)
	f.Add(`{"format":1,"leader":"","members":null}`)
	f.Add(`{"format":1,"leader":"gone","term":9223372036854775807,"members":{"a":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s := newScene(t, rules{})
		read, err := parse([]byte(text), time.Unix(1e9, 0))
		if err != nil || len(read.Members) > 100 {
			return
		}
		_ = s.put([]byte(text))
		for range 2 * int(MaxTTL/sceneStep) { // until all that it names are dead
			s.members[0].clock += sceneStep
			s.members[0].takesTurn()
		}
		if r := s.record; r.Term < read.Term || !s.members[0].leads() || len(r.Members) != 1 {
			t.Errorf("term %d after %d, %+v", r.Term, read.Term, r)
		}
	})
}

