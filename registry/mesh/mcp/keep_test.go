package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// shelf is a registry that keeps records.
type shelf struct {
	mu     sync.Mutex
	texts  map[[2]string]string // by kind and name
	writes int
	fails  error
	blocks <-chan struct{} // nil: it answers at once
	takes  time.Duration   // to store a text
}

func newShelf() *shelf { return &shelf{texts: make(map[[2]string]string)} }

func (s *shelf) Records(_ context.Context, kind string) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]string)
	for at, text := range s.texts {
		if at[0] == kind {
			out[at[1]] = text
		}
	}
	return out, s.fails
}

func (s *shelf) Record(ctx context.Context, kind, name, text string) error {
	s.mu.Lock()
	blocks, takes := s.blocks, s.takes
	s.mu.Unlock()
	time.Sleep(takes)
	if blocks != nil {
		select {
		case <-blocks:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.fails != nil {
		return s.fails
	}
	s.texts[[2]string{kind, name}] = text
	if text == "" {
		delete(s.texts, [2]string{kind, name})
	}
	return nil
}

func (s *shelf) wrote() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *shelf) change(f func(map[[2]string]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.texts)
}

func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// block has no text stored before the returned function is called.
func (s *shelf) block() (unblock func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	blocks := make(chan struct{})
	s.blocks = blocks
	return func() { close(blocks) }
}

// copied returns a shelf as one that was killed now leaves it.
func (s *shelf) copied() *shelf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &shelf{texts: maps.Clone(s.texts)}
}

// of makes the shelf the place of every group.
func (s *shelf) of() []mcp.Store {
	return []mcp.Store{{Recorder: s, Name: "served-x", Has: func(registry.Group) bool { return true }}}
}

// fill makes a run that serves n services ends in a kept state.
func fill(t *testing.T, n int, places ...mcp.Store) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, mcp.Options{Keep: places})
		r.groups()
		for i := range n {
			r.put(greeter(fmt.Sprintf("api.s%d", i), "10.0.0.1"))
		}
		r.target.SourcesComplete()
	})
}

// groups lists what the target holds, as a loop does first.
func (r *rig) groups() []registry.Group {
	r.t.Helper()
	all, err := r.target.Groups(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// What was served outlives the process, without a disk.
func TestWhatWasServedIsHeldAfterARestart(t *testing.T) {
	s := newShelf()
	fill(t, 200, s.of()...)
	if n := s.wrote(); n != 32 {
		t.Errorf("%d records were written, want each once", n)
	}
	bubble(t, "it is held, and not served before every source told of everything", func(t *testing.T) {
		r := start(t, mcp.Options{Keep: s.of()})
		i := r.connect("", newType)
		all := r.groups()
		if len(all) != 200 {
			t.Fatalf("%d groups are held", len(all))
		}
		held, err := r.target.Read(t.Context(), all[0])
		if err != nil || len(held) != 2 || held[0].Owner == "" {
			t.Errorf("held are %+v, %v", held, err)
		}
		time.Sleep(time.Hour)
		if n := len(i.answers(newType)); n != 0 || r.target.Ready() == nil {
			t.Errorf("an old set was served as the whole truth: %d answers", n)
		}
		r.target.SourcesComplete()
		time.Sleep(time.Hour)
		if n := len(i.entries(newType)); n != 200 {
			t.Errorf("%d hosts are served", n)
		}
	})
	if n := s.wrote(); n != 32 {
		t.Errorf("%d writes of what did not change", n-32)
	}
	bubble(t, "nothing is kept of a set that is not whole yet", func(t *testing.T) {
		r := start(t, mcp.Options{Keep: s.of()})
		r.groups()
		r.put(greeter("api.s7", "10.0.1.1"))
		time.Sleep(time.Hour)
		if n := s.wrote(); n != 32 {
			t.Errorf("%d records were written", n-32)
		}
	})
	bubble(t, "a change rewrites the one record that it is in, ten seconds later", func(t *testing.T) {
		r := start(t, mcp.Options{Keep: s.of()})
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

func TestRecordsThatCannotBeUsed(t *testing.T) {
	for name, alter := range map[string]func(texts map[[2]string]string, at [2]string){
		"gone":        func(texts map[[2]string]string, at [2]string) { delete(texts, at) },
		"cut short":   func(texts map[[2]string]string, at [2]string) { texts[at] = texts[at][:len(texts[at])/2] },
		"no base64":   func(texts map[[2]string]string, at [2]string) { texts[at] = "{}" },
		"one changed": func(texts map[[2]string]string, at [2]string) { texts[at] = texts[at][:80] + "A" + texts[at][81:] },
		"another's":   func(texts map[[2]string]string, at [2]string) { texts[at] = texts[[2]string{"served-x-31", "set"}] },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf()
			fill(t, 200, s.of()...)
			at := [2]string{"served-x-00", "set"}
			whole := s.texts[at]
			if alter(s.texts, at); s.texts[at] == whole {
				t.Fatal("nothing is altered")
			}
			synctest.Test(t, func(t *testing.T) {
				r := start(t, mcp.Options{Keep: s.of()})
				if n := len(r.groups()); n >= 200 || n < 180 {
					t.Errorf("%d groups are held", n)
				}
				for i := range 200 {
					r.put(greeter(fmt.Sprintf("api.s%d", i), "10.0.0.1"))
				}
				r.target.SourcesComplete()
				time.Sleep(10 * time.Minute)
			})
			if s.texts[at] != whole {
				t.Error("it was not made anew")
			}
		})
	}
	bubble(t, "a registry that is away: nothing is known, so that nothing is served", func(t *testing.T) {
		s := newShelf()
		s.fails = errors.New("connection refused")
		r := start(t, mcp.Options{Keep: s.of()})
		if _, err := r.target.Groups(t.Context()); err == nil {
			t.Error("what is held was told without having been read")
		}
		s.fail(nil)
		r.groups()
	})
	bubble(t, "access is denied: the bridge goes on without, and says so", func(t *testing.T) {
		s := newShelf()
		s.fails = fmt.Errorf("%w: no rights", registry.ErrRefused)
		told := make(faults, 1000)
		r := start(t, mcp.Options{Keep: s.of(), Observe: told.observe})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		expect(t, r.connect("", newType).entries(newType), "api.a=10.0.0.1")
		time.Sleep(time.Hour)
		told.says(t, "what was served before is not used: refused: no rights")
		if n := s.wrote(); n > 32 {
			t.Errorf("what is refused was tried %d times", n)
		}
	})
	bubble(t, "rights that come later: what did not change meanwhile is kept too", func(t *testing.T) {
		s := newShelf()
		s.fails = fmt.Errorf("%w: no rights", registry.ErrRefused)
		r := start(t, mcp.Options{Keep: s.of()})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		time.Sleep(time.Hour)
		s.fail(nil)
		time.Sleep(10 * time.Minute)
		s.change(func(texts map[[2]string]string) {
			if len(texts) != 1 {
				t.Errorf("%d records", len(texts))
			}
		})
	})
	bubble(t, "records that a wiped registry took along are written once more", func(t *testing.T) {
		s := newShelf()
		r := start(t, mcp.Options{Keep: s.of()})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		time.Sleep(time.Minute)
		s.change(func(texts map[[2]string]string) { clear(texts) })
		time.Sleep(10 * time.Minute)
		s.change(func(texts map[[2]string]string) {
			if len(texts) != 1 {
				t.Errorf("%d records", len(texts))
			}
		})
	})
}

// What keeps the records is beside the pushes.
func TestRecordsHoldNoPushUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		r := start(t, mcp.Options{Keep: s.of()})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect("", newType)
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

// faults are what a target reported of its records.
type faults chan error

func (f faults) observe(o mcp.Observation) {
	if o.Kind == mcp.ObservedState {
		f <- o.Err
	}
}

func (f faults) says(t *testing.T, want string) {
	t.Helper()
	var err error
	select {
	case err = <-f:
	default:
	}
	if !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("it told %v, want %q", err, want)
	}
}

func TestTarget_KeepsNewHostsBeforeTheyAreServed(t *testing.T) {
	// begin serves api.a, kept.
	begin := func(t *testing.T, s *shelf, observe func(mcp.Observation)) (*rig, *istiod) {
		t.Helper()
		r := start(t, mcp.Options{Keep: s.of(), Observe: observe})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect("", newType)
		expect(t, i.entries(newType), "api.a=10.0.0.1")
		return r, i
	}
	bubble(t, "whoever is killed then leaves a record of them", func(t *testing.T) {
		s := newShelf()
		r, i := begin(t, s, nil)
		if n := len(start(t, mcp.Options{Keep: s.copied().of()}).groups()); n != 1 {
			t.Errorf("%d groups are kept of the first set", n)
		}
		time.Sleep(time.Minute)
		r.put(greeter("api.b", "10.0.0.2"))
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2")
		if n := len(start(t, mcp.Options{Keep: s.copied().of()}).groups()); n != 2 {
			t.Errorf("%d groups are kept of the second", n)
		}
	})
	bubble(t, "they wait for the record, and many for one of each", func(t *testing.T) {
		s := newShelf()
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
			t.Errorf("%d answers while nothing is kept", n)
		}
		unblock()
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2")
		time.Sleep(time.Second)
		if n := len(i.entries(newType)); n != 202 {
			t.Errorf("%d hosts are served", n)
		}
		if n := s.wrote() - before; n != 33 {
			t.Errorf("%d writes, want one, and one of each record", n)
		}
	})
	bubble(t, "they wait ten seconds, which is told, and no more while that lasts", func(t *testing.T) {
		s, told := newShelf(), make(faults, 1000)
		r, i := begin(t, s, told.observe)
		time.Sleep(time.Minute)
		unblock := s.block()
		r.put(greeter("api.b", "10.0.0.2"))
		time.Sleep(9 * time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1")
		time.Sleep(2 * time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2")
		told.says(t, "served before they are kept")
		r.put(greeter("api.c", "10.0.0.3"))
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2", "api.c=10.0.0.3")
		unblock()
		time.Sleep(time.Minute)
		if n := len(start(t, mcp.Options{Keep: s.copied().of()}).groups()); n != 3 {
			t.Errorf("%d groups are kept in the end", n)
		}
		s.block()
		r.put(greeter("api.d", "10.0.0.4"))
		if n := len(i.entries(newType)); n != 3 {
			t.Errorf("%d hosts are served, of which three are kept", n)
		}
	})
	bubble(t, "what cannot be kept is served at once, told, and tried again", func(t *testing.T) {
		s, told := newShelf(), make(faults, 1000)
		r, i := begin(t, s, told.observe)
		s.fail(errors.New("connection refused"))
		r.put(greeter("api.b", "10.0.0.2"))
		time.Sleep(time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2")
		unblock := s.block() // it does not answer any more, which nobody waits for
		r.put(greeter("api.c", "10.0.0.3"))
		time.Sleep(time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.2", "api.c=10.0.0.3")
		unblock()
		told.says(t, "what is served is not kept")
		s.fail(nil)
		time.Sleep(time.Minute)
		if n := len(start(t, mcp.Options{Keep: s.copied().of()}).groups()); n != 3 {
			t.Errorf("%d groups are kept in the end", n)
		}
	})
	bubble(t, "those that a target before it served count as new", func(t *testing.T) {
		old, s := start(t, mcp.Options{}), newShelf()
		old.put(greeter("api.a", "10.0.0.1"))
		old.target.SourcesComplete()
		r := start(t, mcp.Options{Predecessor: old.target, Keep: s.of()})
		r.groups()
		r.target.SourcesComplete()
		expect(t, r.connect("", newType).entries(newType), "api.a=10.0.0.1")
		if n := len(start(t, mcp.Options{Keep: s.copied().of()}).groups()); n != 1 {
			t.Errorf("%d groups are kept", n)
		}
	})
	s := newShelf()
	fill(t, 100, s.of()...)
	bubble(t, "those that are kept already do not wait", func(t *testing.T) {
		r := start(t, mcp.Options{Keep: s.of()})
		r.groups()
		s.block()
		r.target.SourcesComplete()
		if n := len(r.connect("", newType).entries(newType)); n != 100 {
			t.Errorf("%d hosts are served", n)
		}
	})
	bubble(t, "nor do they wait for records of other changes", func(t *testing.T) {
		s := s.copied()
		r := start(t, mcp.Options{Keep: s.of()})
		r.groups()
		r.target.SourcesComplete()
		i := r.connect("", newType)
		time.Sleep(time.Minute)
		s.takes = 2 * time.Second
		for n := range 100 {
			r.put(greeter(fmt.Sprintf("api.s%d", n), "10.0.0.2"))
		}
		time.Sleep(15 * time.Second) // these are being written
		r.put(greeter("api.new", "10.0.0.1"))
		time.Sleep(5 * time.Second)
		if n := len(i.entries(newType)); n != 101 {
			t.Errorf("%d hosts are served", n)
		}
	})
	s = newShelf()
	p := s.of()[0]
	p.Index, p.Names = "serving-x", []string{p.Name}
	fill(t, 20, p)
	bubble(t, "where the address is another, with all that was served before", func(t *testing.T) {
		p.Name, p.Names = "served-y", []string{"served-y"}
		r := start(t, mcp.Options{Keep: []mcp.Store{p}})
		r.groups()
		r.put(greeter("api.new", "10.0.0.1"))
		r.target.SourcesComplete()
		if n := len(r.connect("", newType).entries(newType)); n != 21 {
			t.Errorf("%d hosts are served", n)
		}
		p.Recorder = s.copied()
		if n := len(start(t, mcp.Options{Keep: []mcp.Store{p}}).groups()); n != 21 {
			t.Errorf("%d groups are kept", n)
		}
	})
}

// TestWhatWasServedAtAnotherAddressIsFoundAgain: a mesh that is served at another
// address than before has its guard see what is missing all the same.
func TestWhatWasServedAtAnotherAddressIsFoundAgain(t *testing.T) {
	at := func(s *shelf, name string, names ...string) mcp.Store {
		p := s.of()[0]
		p.Name, p.Index, p.Names = name, "serving-x", slices.Concat(names, []string{name})
		return p
	}
	holds := func(t *testing.T, want int, p mcp.Store) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			r := start(t, mcp.Options{Keep: []mcp.Store{p}})
			if n := len(r.groups()); n != want {
				t.Errorf("%d groups are held at %s, want %d", n, p.Name, want)
			}
			r.target.SourcesComplete()
		})
	}
	s := newShelf()
	fill(t, 20, at(s, "served-a"))
	holds(t, 20, at(s, "served-b"))
	holds(t, 20, at(s, "served-b"))
	holds(t, 20, at(s, "served-c"))
	s.change(func(texts map[[2]string]string) {
		for key := range texts {
			if !strings.HasPrefix(key[0], "served-c") && key != [2]string{"serving-x", "served-c"} {
				t.Errorf("%v is left", key)
			}
		}
	})
	holds(t, 0, at(s, "served-d", "served-c")) // one more address is no other
	holds(t, 20, at(s, "served-c", "served-d"))
	holds(t, 20, at(s, "served-e", "served-d"))             // in the place of c
	holds(t, 0, at(s, "served-f", "served-g"))              // which is which cannot be known
	holds(t, 0, at(s, "served-g", "served-f"))              // nor later
	holds(t, 20, at(s, "served-e", "served-f", "served-g")) // where each is itself
	s.fail(fmt.Errorf("%w: no right", registry.ErrRefused))
	holds(t, 0, at(s, "served-h"))
}

func TestAFolderBesideTheRegistry(t *testing.T) {
	registryAnd := func(s *shelf, folder string) []mcp.Store {
		return append(s.of(), mcp.Store{Recorder: mcp.Dir{Path: folder}, Name: "served-x"})
	}
	s, folder := newShelf(), t.TempDir()
	fill(t, 20, registryAnd(s, folder)...)
	bubble(t, "has everything where the registry has nothing", func(t *testing.T) {
		r := start(t, mcp.Options{Keep: registryAnd(newShelf(), folder)})
		if n := len(r.groups()); n != 20 {
			t.Errorf("%d groups are held", n)
		}
	})
	bubble(t, "brings nothing back that is gone from the registry's", func(t *testing.T) {
		newer := newShelf()
		newer.texts = maps.Clone(s.texts)
		first := slices.SortedFunc(maps.Keys(newer.texts), func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })[0]
		delete(newer.texts, first)
		r := start(t, mcp.Options{Keep: registryAnd(newer, folder)})
		if n := len(r.groups()); n == 20 || n == 0 {
			t.Errorf("%d groups are held", n)
		}
	})
}

func TestATargetTakesOverWhatTheOneBeforeItHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := start(t, mcp.Options{})
		old.put(greeter("api.a", "10.0.0.1"))
		old.target.SourcesComplete()
		r := start(t, mcp.Options{Predecessor: old.target})
		if n := len(r.groups()); n != 1 {
			t.Errorf("%d groups are held", n)
		}
	})
}

// Both keep when a host went; one of them says it first.
func TestReplicasAgreeOnWhenAHostWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		a, b := start(t, mcp.Options{Keep: s.of()}), start(t, mcp.Options{Keep: s.of()})
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
			t.Errorf("%d writes of one change", n)
		}
	})
}
