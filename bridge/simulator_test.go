//go:build soak

package bridge_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/soaktest"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/memory"
)

// TestSchedulesOfFaults has faults follow each other in random schedules, one
// often before the other healed, against the same oracle as TestInvariants. A
// seed that fails prints its schedule.
func TestSchedulesOfFaults(t *testing.T) {
	for seed := range soaktest.Seeds(t) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newSimulator(t, uint64(seed)).run() })
		})
	}
}

// A simulator is a chaos that goes through a schedule of named faults.
type simulator struct {
	*chaos
	schedule []string
	slow     bool // calls take seconds
	deaf     bool // writes fail, reads work
}

func newSimulator(t *testing.T, seed uint64) *simulator {
	t.Helper()
	s := &simulator{chaos: newChaos(t, 1000+seed)}
	s.watched.faults = false
	s.target.Fail(func(op memory.Op, g registry.Group) error {
		s.watched.mu.Lock()
		slow, deaf := s.slow, s.deaf
		s.watched.mu.Unlock()
		if slow {
			time.Sleep(10 * time.Second)
		}
		if deaf && op == memory.OpWrite {
			return errDown
		}
		return s.watched.maybe(op, g)
	})
	return s
}

// faults are what can happen, by name.
func (s *simulator) faults() map[string]func() {
	return map[string]func(){
		"F01 killed and started at once":            s.restarts,
		"F06 away while sources change":             s.away,
		"F11 a partial reading, and the whole":      s.partial,
		"F12 a reading without anything":            func() { s.any().Replace(slices.Values([]*registry.Service(nil))) },
		"F13 a service is taken back":               func() { s.any().Delete(registry.Name(s.name())) },
		"F14 the source is away, and back":          s.sourceAway,
		"F25 the target loses a part":               func() { s.target.Drop(group(fmt.Sprint("g", s.r.IntN(4))), s.addr()) },
		"F33 the session expires":                   s.target.Expire,
		"F37 a part of the source is denied":        func() { s.any().Unknown("x/*", []error{nil, errDown}[s.r.IntN(2)]) },
		"F38 calls fail, and answers get lost":      func() { s.set(func() { s.watched.faults = !s.watched.faults }) },
		"F40 everything in the target is deleted":   s.emptied,
		"F42 somebody edits what is ours":           s.edited,
		"F43 somebody registers an address of ours": func() { s.target.Set(theirs(fmt.Sprint("g", s.r.IntN(4)), s.addr())) },
		"F48 writes fail and reads work":            func() { s.set(func() { s.deaf = !s.deaf }) },
		"F49 the target is slow":                    func() { s.set(func() { s.slow = !s.slow }) },
		"F51 a storm of changes":                    s.storm,
		"F53 an endpoint flaps":                     s.flaps,
		"a change":                                  func() { s.any().Put(s.service()) },
		"another change":                            func() { s.any().Put(s.service()) },
	}
}

// set changes what the target's hooks look at.
func (s *simulator) set(do func()) {
	s.watched.mu.Lock()
	defer s.watched.mu.Unlock()
	do()
}

func (s *simulator) any() *registry.Table { return s.tables[[]string{"b", "c"}[s.r.IntN(2)]] }

func (s *simulator) run() {
	for range s.r.IntN(8) { // of an earlier run
		s.target.Set(mine(fmt.Sprint("g", s.r.IntN(4)), s.addr()))
	}
	s.starts(s.watched)
	faults := s.faults()
	names := slices.Sorted(maps.Keys(faults))
	for range 60 {
		name := names[s.r.IntN(len(names))]
		s.schedule = append(s.schedule, name)
		faults[name]()
		synctest.Wait()
		s.watched.claims()
		if s.r.IntN(2) == 0 {
			s.in([]time.Duration{time.Second, 20 * time.Second, 2 * time.Minute}[s.r.IntN(3)])
		}
	}
	s.set(func() { s.slow, s.deaf = false, false })
	s.heal()
	s.agrees()
	if s.t.Failed() {
		s.t.Logf("the schedule:\n%s", strings.Join(s.schedule, "\n"))
	}
}

// restarts ends the loop and starts another, which knows nothing: its tables
// are told a part at first.
func (s *simulator) restarts() {
	s.stop()
	told := make(map[string][]*registry.Service)
	for i, b := range s.bridges {
		rows, _ := b.Table.Snapshot()
		told[b.Name] = slices.Collect(maps.Values(rows))
		s.tables[b.Name] = registry.NewTable()
		s.bridges[i].Table = s.tables[b.Name]
	}
	s.set(func() {
		s.watched.bridges = s.bridges
		clear(s.watched.emptied) // the guard counts anew
		clear(s.watched.busy)
	})
	s.starts(s.watched)
	for name, rows := range told {
		for _, row := range rows {
			if s.r.IntN(2) == 0 {
				s.tables[name].Put(row)
			}
		}
	}
	s.in(time.Duration(s.r.IntN(90)) * time.Second)
	for name, rows := range told {
		s.tables[name].Replace(slices.Values(rows))
	}
}

func (s *simulator) away() {
	s.stop()
	for range s.r.IntN(4) {
		s.any().Put(s.service())
	}
	s.set(func() { clear(s.watched.emptied) })
	s.starts(s.watched)
}

// partial has a source tell a part of what it has, and soon after all of it.
func (s *simulator) partial() {
	table := s.any()
	rows, _ := table.Snapshot()
	whole := slices.Collect(maps.Values(rows))
	rand.New(rand.NewPCG(s.r.Uint64(), 0)).Shuffle(len(whole), func(i, j int) { whole[i], whole[j] = whole[j], whole[i] })
	table.Replace(slices.Values(whole[:len(whole)/2]))
	s.in(time.Duration(s.r.IntN(20)) * time.Second)
	table.Replace(slices.Values(whole))
}

func (s *simulator) sourceAway() {
	table := s.any()
	table.Stale(errLost)
	s.in(time.Duration(s.r.IntN(300)) * time.Second)
	rows, _ := table.Snapshot()
	table.Replace(maps.Values(rows))
}

func (s *simulator) emptied() {
	for _, e := range s.target.Entries() {
		s.target.Drop(e.Group, e.Key)
	}
}

func (s *simulator) edited() {
	entries := s.target.Entries()
	if len(entries) == 0 {
		return
	}
	e := entries[s.r.IntN(len(entries))]
	held, err := s.target.Read(s.t.Context(), e.Group)
	if err != nil {
		return
	}
	for _, h := range held {
		if h.Key == e.Key && h.Owner == "me" {
			h.Value = "edited"
			s.target.Set(h)
		}
	}
}

func (s *simulator) storm() {
	for range 200 {
		s.any().Put(s.service())
		s.watched.claims() // the oracle has to see every claimant
		s.in(time.Millisecond)
	}
}

func (s *simulator) flaps() {
	table, one := s.any(), s.service()
	for range 20 {
		table.Put(one)
		s.watched.claims()
		s.in(50 * ms)
		table.Delete(one.Name)
		s.in(50 * ms)
	}
}
