package bridge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// of returns a service with the endpoints from one number to before another.
func of(name string, from, to int) *registry.Service {
	var addrs []string
	for n := from; n < to; n++ {
		addrs = append(addrs, fmt.Sprintf("10.0.0.%d:80", n+1))
	}
	return service(name, addrs...)
}

// TestRecords_Wait shows how long a deletion waits for its record.
func TestRecords_Wait(t *testing.T) {
	const look = 3 * time.Second // one text, and two kinds that are read
	slow := func(s *story) *story {
		s.recorded().has(of("a", 0, 40), of("b", 0, 3)).in(time.Minute)
		s.records.late.Store(int64(look / 3))
		return s
	}
	stories(t, bridge.DefaultGuard(), map[string]func(*story){
		"all losses of a moment are recorded by one call": func(s *story) {
			s.recorded().has(fleet(100, 3)...).in(time.Minute)
			s.records.late.Store(int64(look / 3))
			s.table().Apply(fleet(100, 2), nil)
			s.in(2 * look / 3).storesN(300).in(look / 3).storesN(200)
		},
		"a further loss in the same record puts none back": func(s *story) {
			const n, every = 128, 100 * ms // two services in each record
			s.recorded().has(fleet(n, 3)...).in(time.Minute)
			s.records.late.Store(int64(look / 3))
			for i, lost := range fleet(n, 2) {
				s.put(lost).in(every)
				if first := i - int(2*look/every); first >= 0 && slices.ContainsFunc(s.target.Entries(), func(e registry.Entry) bool {
					return e.Group.Name == fmt.Sprint("s", first) && strings.HasSuffix(e.Key, ".3:80")
				}) {
					s.Fatalf("s%d waits for its record after two were stored", first)
				}
			}
			s.in(2 * look).storesN(2 * n).inSync(true)
		},
		"it waits only for its own text": func(s *story) {
			slow(s).put(of("b", 1, 3)).in(look + look/3).storesN(42) // its record is renewed once it is gone
			s.put(of("a", 1, 40)).in(look/3 - 1).storesN(42).in(1).storesN(41)
		},
		"one that waits is due": func(s *story) {
			slow(s).put(of("b", 1, 3)).in(time.Second).storesN(43).inSync(false).reason("b", bridge.ReasonPending, "its loss is being recorded")
			st := s.status()
			s.is("groups due", st.Queue, 1).is("since", st.OldestDue, time.Second).is("reason of a", s.of("a").Reason, bridge.ReasonSynced)
			s.in(look).storesN(42).inSync(true).is("groups due", s.status().Queue, 0)
		},
		"a waiting deletion is due although its claimant is unknown": func(s *story) {
			s = s.recorded().has(of("a", 0, 40), of("b", 0, 3)).in(time.Minute).again()
			s.has(of("a", 0, 40), of("b", 1, 3)).in(50 * time.Second).inSync(true)
			s.records.late.Store(int64(look / 3))
			s.in(11*time.Second).storesN(43).inSync(false).is("groups due", s.status().Queue, 1)
			s.in(look).storesN(42).inSync(true)
		},
		"without its record none goes": func(s *story) {
			slow(s).records.away.Store(true)
			s.put(of("b", 1, 3)).in(time.Hour).storesN(43).inSync(false).is("groups due", s.status().Queue, 1)
			s.records.away.Store(false)
			s.in(10 * time.Second).storesN(42).inSync(true)
		},
		"a refused record delays nothing": func(s *story) {
			s.recorded().has(of("a", 0, 40), of("b", 0, 3)).in(time.Minute).records.full.Store(true)
			for n := range 10 {
				s.put(of("a", n+1, 40)).in(time.Second).storesN(3 + 39 - n).inSync(true)
			}
			s.logged("not authenticated", 1).says("unrecorded", s.status().Unrecorded, "not authenticated")
		},
	})
}
