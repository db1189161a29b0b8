package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestElection_Standby(t *testing.T) {
	stories(t, speed, map[string]func(*story){
		"reads and does not write": func(s *story) {
			s.elected(standby(1)).storing(mine("a", "10.0.0.1:80"), mine("left", "10.0.0.7:80"))
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.3:80")).in(time.Hour)
			s.stores("a 10.0.0.1:80", "left 10.0.0.7:80").noHold().is("writes", s.writes(), 0)
			s.between("reads", len(s.when(memory.OpRead, "a")), 1, 99)
			s.reason("a", bridge.ReasonStandby, "other leads").reason("b", bridge.ReasonStandby, "other leads")
			s.becomes(bridge.Leadership{Role: bridge.RoleStandby, Term: 1, Leader: "third"}).in(0).reason("a", bridge.ReasonStandby, "third leads")
		},
		"the leader's writes are not events": func(s *story) {
			s.elected(standby(1)).storing(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.2:80"))
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Minute).put(service("a", "10.0.0.3:80")).in(time.Second)
			s.storing(mine("a", "10.0.0.3:80")).target.Drop(group("a"), "10.0.0.1:80")
			s.in(time.Hour).is("events", len(s.emitted()), 0).between("reads", len(s.when(memory.OpRead, "a")), 2, 99)
		},
		"nothing is written after a lease": func(s *story) {
			s.elected(bridge.Leadership{Role: bridge.RoleLeader, Term: 1, Leader: "me", Until: time.Now().Add(10 * time.Second)})
			s.has(service("a", "10.0.0.1:80")).in(11 * time.Second).has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Hour)
			s.stores("a 10.0.0.1:80").reason("a", bridge.ReasonStandby, "")
		},
		"a call ends with the lease": func(s *story) {
			until := time.Now().Add(10 * time.Second)
			s.elected(bridge.Leadership{Role: bridge.RoleLeader, Term: 1, Until: until})
			var ended time.Time
			s.target.write = func(ctx context.Context, _ registry.Change) error {
				<-ctx.Done()
				ended = time.Now()
				return errors.Join(errDown, ctx.Err())
			}
			s.has(service("a", "10.0.0.1:80")).in(time.Minute).is("end of the call", ended, until)
		},
		"a fenced write is tried ever less often": func(s *story) {
			s.elected(leader(1)).fail(failing(memory.OpWrite, fmt.Errorf("term 1: %w", registry.ErrFenced)))
			s.has(service("a", "10.0.0.1:80")).in(time.Minute).stores().reason("a", bridge.ReasonRetrying, "another replica")
			s.between("attempts", len(s.when(memory.OpWrite, "a")), 1, 8)
		},
		"it publishes into a shared target": func(s *story) {
			s.elected(standby(1)).starts(shared{s.target}).has(service("a", "10.0.0.1:80")).in(time.Second).stores("a 10.0.0.1:80")
			s.becomes(leader(2)).in(time.Second).stores("a 10.0.0.1:80").becomes(standby(3))
			s.has(service("a", "10.0.0.2:80")).in(time.Hour).stores("a 10.0.0.2:80")
		},
	})
}

func TestElection_TakeOver(t *testing.T) {
	stories(t, speed, map[string]func(*story){
		"it reads again before it writes": func(s *story) {
			s.elected(leader(1)).has(service("a", "10.0.0.1:80")).in(time.Second).stores("a 10.0.0.1:80")
			lead := leader(3)
			s.election.now.Store(&lead)
			s.storing(mine("a", "10.0.0.2:80")) // by who led meanwhile
			s.has(service("a", "10.0.0.1:80", "10.0.0.3:80")).in(time.Second).stores("a 10.0.0.1:80", "a 10.0.0.3:80")
			reads, writes := s.when(memory.OpRead, "a"), s.when(memory.OpWrite, "a")
			if len(reads) != 1 || reads[0] != time.Second || writes[1] < reads[0] {
				s.Errorf("read at %v, written at %v, want it read first", reads, writes)
			}
		},
		"a reading under way is made again": func(s *story) {
			s.target.delay = time.Second
			s.elected(standby(1)).has(service("a", "10.0.0.1:80")).in(1500 * ms)
			s.storing(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.5:80")).becomes(leader(2)).in(20 * time.Second).stores("a 10.0.0.1:80")
		},
		"orphans settle again": func(s *story) {
			s.bridges[0].Guard = timed()
			s.elected(standby(1)).storing(mine("a", "10.0.0.1:80"), mine("left", "10.0.0.7:80")).has(service("a", "10.0.0.1:80")).in(time.Hour)
			s.becomes(leader(2)).in(59 * time.Second).storesN(2).in(2 * time.Second).stores("a 10.0.0.1:80")
		},
		"an orphan that was withdrawn before is deleted": func(s *story) {
			s.bridges[0].Guard = bridge.DefaultGuard()
			s.elected(standby(1)).storing(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.2:80"))
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Minute)
			s.put(service("a", "10.0.0.1:80")).in(time.Minute).storesN(2).becomes(leader(2)).in(time.Second).stores("a 10.0.0.1:80")
		},
	})
}

func TestElection_Ready(t *testing.T) {
	stories(t, speed, map[string]func(*story){
		"once all was read or written, each term": func(s *story) {
			s.elected(standby(1)).starts().in(time.Minute).ready(bridge.Leadership{}) // the source is not complete
			s.has(fleet(10, 1)...).in(time.Second).ready(standby(1)).becomes(standby(2)).in(time.Second).ready(standby(2))
			s.fail(failing(memory.OpWrite, errDown)).becomes(leader(3)).in(time.Minute).is("holds", len(s.target.Entries()), 0)
			s.is("ready to lead", s.election.ready == leader(3), false)
			s.fail(nil).in(time.Minute).ready(leader(3)).storesN(10)
		},
		"not while the source is stale": func(s *story) {
			s.elected(standby(1)).has(fleet(10, 1)...).in(time.Second).stale(errLost).in(time.Second).ready(bridge.Leadership{})
			s.has(fleet(10, 1)...).in(time.Second).ready(standby(1))
		},
		"without any group": func(s *story) { s.elected(leader(1)).has().in(time.Second).ready(leader(1)) },
	})
}
