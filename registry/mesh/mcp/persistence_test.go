package mcp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// What was served outlives the process, without a disk.
func TestTarget_Restart(t *testing.T) {
	s := newFakeRecorder()
	fill(t, 200, s.of()...)
	if n := s.wrote(); n != 32 {
		t.Errorf("%d records were written, want each once", n)
	}
	bubble(t, "it is held, and not served before every source has reported everything", func(t *testing.T) {
		r := start(t, mcp.Options{PersistTo: s.of()})
		i := r.connect(newType)
		all := r.groups()
		if len(all) != 200 {
			t.Fatalf("%d groups held, want 200", len(all))
		}
		held, err := r.target.Read(t.Context(), all[0])
		if err != nil || len(held) != 2 || held[0].Owner == "" {
			t.Errorf("Read() = %+v, %v, want two entries with an owner", held, err)
		}
		time.Sleep(time.Hour)
		if n := len(i.answers(newType)); n != 0 || r.target.Ready() == nil {
			t.Errorf("%d answers with an old set, want none before it is complete", n)
		}
		r.target.SourcesComplete()
		time.Sleep(time.Hour)
		if n := len(i.entries(newType)); n != 200 {
			t.Errorf("%d hosts served, want 200", n)
		}
	})
	if n := s.wrote(); n != 32 {
		t.Errorf("%d writes of what did not change, want none", n-32)
	}
	bubble(t, "nothing is kept of a set that is not whole yet", func(t *testing.T) {
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		r.put(greeter("api.s7", "10.0.1.1"))
		time.Sleep(time.Hour)
		if n := s.wrote(); n != 32 {
			t.Errorf("%d records written, want none", n-32)
		}
	})
	bubble(t, "a change rewrites the one record that it is in, ten seconds later", func(t *testing.T) {
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		r.target.SourcesComplete()
		synctest.Wait()
		for n := range 50 {
			r.put(greeter("api.s7", fmt.Sprintf("10.0.1.%d", n)))
		}
		time.Sleep(11 * time.Second)
		if n := s.wrote(); n != 33 {
			t.Errorf("%d records were written, want 1", n-32)
		}
	})
}

// Persisting does not delay pushes.
func TestTarget_PersistenceDelaysNoPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeRecorder()
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect(newType)
		expect(t, i.entries(newType), "api.a=10.0.0.1")
		unblock := s.block()
		for n := range 100 {
			r.put(greeter("api.a", fmt.Sprintf("10.0.1.%d", n)))
			time.Sleep(time.Second)
			expect(t, i.entries(newType), fmt.Sprintf("api.a=10.0.1.%d", n))
		}
		unblock()
	})
}

// stateErrors are what a target reported of its records.
type persistenceErrors chan error

func (f persistenceErrors) observe(o mcp.Observation) {
	if o.Kind == mcp.ObservedPersistence {
		f <- o.Err
	}
}

func (f persistenceErrors) says(t *testing.T, want string) {
	t.Helper()
	var err error
	select {
	case err = <-f:
	default:
	}
	if !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("reported %v, want %q", err, want)
	}
}

func TestTarget_PersistsNewHostsFirst(t *testing.T) {
	// begin serves api.a, kept.
	begin := func(t *testing.T, s *fakeRecorder, observe func(mcp.Observation)) (*rig, *istiod) {
		t.Helper()
		r := start(t, mcp.Options{PersistTo: s.of(), Observe: observe})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect(newType)
		expect(t, i.entries(newType), "api.a=10.0.0.1")
		return r, i
	}
	bubble(t, "a process that is killed then has persisted them", func(t *testing.T) {
		s := newFakeRecorder()
		r, i := begin(t, s, nil)
		if n := len(start(t, mcp.Options{PersistTo: s.copied().of()}).groups()); n != 1 {
			t.Errorf("%d groups kept of the first set, want 1", n)
		}
		time.Sleep(time.Minute)
		r.put(greeter("api.b", "10.0.0.2"))
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2")
		if n := len(start(t, mcp.Options{PersistTo: s.copied().of()}).groups()); n != 2 {
			t.Errorf("%d groups kept of the second set, want 2", n)
		}
	})
	bubble(t, "they wait for the record, and many for one of each", func(t *testing.T) {
		s := newFakeRecorder()
		r, i := begin(t, s, nil)
		time.Sleep(time.Minute)
		before, unblock := s.wrote(), s.block()
		r.put(greeter("api.b", "10.0.0.2"))
		synctest.Wait()
		for n := range 200 {
			r.put(greeter(fmt.Sprintf("api.s%d", n), "10.0.0.3"))
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(i.answers(newType)); n != 1 {
			t.Errorf("%d answers while nothing is kept, want 1", n)
		}
		unblock()
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2")
		time.Sleep(time.Second)
		if n := len(i.entries(newType)); n != 202 {
			t.Errorf("%d hosts served, want 202", n)
		}
		if n := s.wrote() - before; n != 33 {
			t.Errorf("%d writes, want one, and one of each record", n)
		}
	})
	bubble(t, "they wait ten seconds, which is reported, and no more while that lasts", func(t *testing.T) {
		s, reported := newFakeRecorder(), make(persistenceErrors, 1000)
		r, i := begin(t, s, reported.observe)
		time.Sleep(time.Minute)
		unblock := s.block()
		r.put(greeter("api.b", "10.0.0.2"))
		time.Sleep(9 * time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1")
		time.Sleep(2 * time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2")
		reported.says(t, "served before they are persisted")
		r.put(greeter("api.c", "10.0.0.3"))
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2", "api.c=10.0.0.3")
		unblock()
		time.Sleep(time.Minute)
		if n := len(start(t, mcp.Options{PersistTo: s.copied().of()}).groups()); n != 3 {
			t.Errorf("%d groups kept in the end, want 3", n)
		}
		s.block()
		r.put(greeter("api.d", "10.0.0.4"))
		if n := len(i.entries(newType)); n != 3 {
			t.Errorf("%d hosts served, want the three that are kept", n)
		}
	})
	bubble(t, "what cannot be kept is served at once, reported, and tried again", func(t *testing.T) {
		s, reported := newFakeRecorder(), make(persistenceErrors, 1000)
		r, i := begin(t, s, reported.observe)
		s.fail(errors.New("connection refused"))
		r.put(greeter("api.b", "10.0.0.2"))
		time.Sleep(time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2")
		unblock := s.block() // it does not answer any more, and no push waits for it
		r.put(greeter("api.c", "10.0.0.3"))
		time.Sleep(time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2", "api.c=10.0.0.3")
		unblock()
		reported.says(t, "persist what is served")
		s.fail(nil)
		time.Sleep(time.Minute)
		if n := len(start(t, mcp.Options{PersistTo: s.copied().of()}).groups()); n != 3 {
			t.Errorf("%d groups kept in the end, want 3", n)
		}
	})
	bubble(t, "those that a target before it served count as new", func(t *testing.T) {
		old, s := start(t, mcp.Options{}), newFakeRecorder()
		old.put(greeter("api.a", "10.0.0.1"))
		old.target.SourcesComplete()
		r := start(t, mcp.Options{Predecessor: old.target, PersistTo: s.of()})
		r.groups()
		r.target.SourcesComplete()
		expect(t, r.connect(newType).entries(newType), "api.a=10.0.0.1")
		if n := len(start(t, mcp.Options{PersistTo: s.copied().of()}).groups()); n != 1 {
			t.Errorf("%d groups kept, want 1", n)
		}
	})
	s := newFakeRecorder()
	fill(t, 100, s.of()...)
	bubble(t, "those that are kept already do not wait", func(t *testing.T) {
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		s.block()
		r.target.SourcesComplete()
		if n := len(r.connect(newType).entries(newType)); n != 100 {
			t.Errorf("%d hosts served, want 100", n)
		}
	})
	bubble(t, "nor do they wait for records of other changes", func(t *testing.T) {
		s := s.copied()
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		r.target.SourcesComplete()
		i := r.connect(newType)
		time.Sleep(time.Minute)
		s.delay = 2 * time.Second
		for n := range 100 {
			r.put(greeter(fmt.Sprintf("api.s%d", n), "10.0.0.2"))
		}
		time.Sleep(15 * time.Second) // these are being written
		r.put(greeter("api.new", "10.0.0.1"))
		time.Sleep(5 * time.Second)
		if n := len(i.entries(newType)); n != 101 {
			t.Errorf("%d hosts served, want 101", n)
		}
	})
	s = newFakeRecorder()
	p := s.of()[0]
	p.Index, p.Names = "serving-x", []string{p.Name}
	fill(t, 20, p)
	bubble(t, "where the address is another, with all that was served before", func(t *testing.T) {
		p.Name, p.Names = "served-y", []string{"served-y"}
		r := start(t, mcp.Options{PersistTo: []mcp.PersistentStore{p}})
		r.groups()
		r.put(greeter("api.new", "10.0.0.1"))
		r.target.SourcesComplete()
		if n := len(r.connect(newType).entries(newType)); n != 21 {
			t.Errorf("%d hosts served, want 21", n)
		}
		p.Recorder = s.copied()
		if n := len(start(t, mcp.Options{PersistTo: []mcp.PersistentStore{p}}).groups()); n != 21 {
			t.Errorf("%d groups kept, want 21", n)
		}
	})
}

func TestTarget_Predecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := start(t, mcp.Options{})
		old.put(greeter("api.a", "10.0.0.1"))
		old.target.SourcesComplete()
		r := start(t, mcp.Options{Predecessor: old.target})
		if n := len(r.groups()); n != 1 {
			t.Errorf("%d groups held, want 1", n)
		}
	})
}

// Both replicas persist when a host was removed; the earlier time counts.
func TestTarget_ReplicasAgreeOnRemovedHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeRecorder()
		a, b := start(t, mcp.Options{PersistTo: s.of()}), start(t, mcp.Options{PersistTo: s.of()})
		for _, r := range []*rig{a, b} {
			r.groups()
			r.put(greeter("api.a", "10.0.0.1"))
			r.target.SourcesComplete()
		}
		time.Sleep(time.Minute)
		before := s.wrote()
		for _, r := range []*rig{a, b} {
			for _, g := range r.groups() {
				r.write(g, nil)
			}
			time.Sleep(2 * time.Second)
		}
		time.Sleep(50 * time.Minute)
		if n := s.wrote() - before; n > 4 {
			t.Errorf("%d writes of one change, want at most 4", n)
		}
	})
}
