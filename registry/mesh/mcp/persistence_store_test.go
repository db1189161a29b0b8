package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// fakeRecorder is a registry that keeps records.
type fakeRecorder struct {
	mu     sync.Mutex
	texts  map[[2]string]string // by kind and name
	writes int
	fails  error
	blocks <-chan struct{} // nil: it answers at once
	delay  time.Duration   // to store a text
}

func newFakeRecorder() *fakeRecorder { return &fakeRecorder{texts: make(map[[2]string]string)} }

func (s *fakeRecorder) Records(_ context.Context, kind string) (map[string]string, error) {
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

func (s *fakeRecorder) Record(ctx context.Context, kind string, texts map[string]string) error {
	s.mu.Lock()
	blocks, delay := s.blocks, s.delay
	s.mu.Unlock()
	time.Sleep(delay)
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
	for name, text := range texts {
		s.texts[[2]string{kind, name}] = text
		if text == "" {
			delete(s.texts, [2]string{kind, name})
		}
	}
	return nil
}

func (s *fakeRecorder) wrote() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *fakeRecorder) change(f func(map[[2]string]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.texts)
}

func (s *fakeRecorder) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// block has no text stored before the returned function is called.
func (s *fakeRecorder) block() (unblock func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	blocks := make(chan struct{})
	s.blocks = blocks
	return func() { close(blocks) }
}

// copied returns a fakeRecorder as one that was killed now leaves it.
func (s *fakeRecorder) copied() *fakeRecorder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &fakeRecorder{texts: maps.Clone(s.texts)}
}

// of makes the fakeRecorder the place of every group.
func (s *fakeRecorder) of() []mcp.PersistentStore {
	return []mcp.PersistentStore{{Recorder: s, Name: "served-x", Has: func(registry.Group) bool { return true }}}
}

// fill makes a run that serves n services ends in a kept state.
func fill(t *testing.T, n int, places ...mcp.PersistentStore) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, mcp.Options{PersistTo: places})
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

func TestTarget_UnusablePersistedBuckets(t *testing.T) {
	for name, alter := range map[string]func(texts map[[2]string]string, at [2]string){
		"gone":        func(texts map[[2]string]string, at [2]string) { delete(texts, at) },
		"cut short":   func(texts map[[2]string]string, at [2]string) { texts[at] = texts[at][:len(texts[at])/2] },
		"no base64":   func(texts map[[2]string]string, at [2]string) { texts[at] = "{}" },
		"one changed": func(texts map[[2]string]string, at [2]string) { texts[at] = texts[at][:80] + "A" + texts[at][81:] },
		"another's":   func(texts map[[2]string]string, at [2]string) { texts[at] = texts[[2]string{"served-x-31", "set"}] },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeRecorder()
			fill(t, 200, s.of()...)
			at := [2]string{"served-x-00", "set"}
			whole := s.texts[at]
			if alter(s.texts, at); s.texts[at] == whole {
				t.Fatal("the record is unchanged, want it altered")
			}
			synctest.Test(t, func(t *testing.T) {
				r := start(t, mcp.Options{PersistTo: s.of()})
				if n := len(r.groups()); n >= 200 || n < 180 {
					t.Errorf("%d groups held, want 180 to 199", n)
				}
				for i := range 200 {
					r.put(greeter(fmt.Sprintf("api.s%d", i), "10.0.0.1"))
				}
				r.target.SourcesComplete()
				time.Sleep(10 * time.Minute)
			})
			if s.texts[at] != whole {
				t.Error("the altered record is still there, want it written again")
			}
		})
	}
	bubble(t, "a registry that is away: nothing is known, so that nothing is served", func(t *testing.T) {
		s := newFakeRecorder()
		s.fails = errors.New("connection refused")
		r := start(t, mcp.Options{PersistTo: s.of()})
		if _, err := r.target.Groups(t.Context()); err == nil {
			t.Error("Groups() = nil, want the error of a record that cannot be read")
		}
		s.fail(nil)
		r.groups()
	})
	bubble(t, "access is denied: the bridge continues without records, and reports it", func(t *testing.T) {
		s := newFakeRecorder()
		s.fails = fmt.Errorf("%w: no rights", registry.ErrRefused)
		reported := make(persistenceErrors, 1000)
		r := start(t, mcp.Options{PersistTo: s.of(), Observe: reported.observe})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		expect(t, r.connect(newType).entries(newType), "api.a=10.0.0.1")
		time.Sleep(time.Hour)
		reported.says(t, "ignoring a part of what was served before the restart: refused: no rights")
		if n := s.wrote(); n > 32 {
			t.Errorf("%d attempts to write what is refused, want at most 32", n)
		}
	})
	bubble(t, "rights that come later: what did not change meanwhile is kept too", func(t *testing.T) {
		s := newFakeRecorder()
		s.fails = fmt.Errorf("%w: no rights", registry.ErrRefused)
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		time.Sleep(time.Hour)
		s.fail(nil)
		time.Sleep(10 * time.Minute)
		s.change(func(texts map[[2]string]string) {
			if len(texts) != 1 {
				t.Errorf("%d records, want 1", len(texts))
			}
		})
	})
	bubble(t, "records that a wiped registry took along are written once more", func(t *testing.T) {
		s := newFakeRecorder()
		r := start(t, mcp.Options{PersistTo: s.of()})
		r.groups()
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		time.Sleep(time.Minute)
		s.change(func(texts map[[2]string]string) { clear(texts) })
		time.Sleep(10 * time.Minute)
		s.change(func(texts map[[2]string]string) {
			if len(texts) != 1 {
				t.Errorf("%d records, want 1", len(texts))
			}
		})
	})
}

// TestPersistentStore_FindsItsFormerName: a mesh that is served at another
// address than before still finds its persisted groups, so that the guard sees what is missing.
func TestPersistentStore_FindsItsFormerName(t *testing.T) {
	at := func(s *fakeRecorder, name string, names ...string) mcp.PersistentStore {
		p := s.of()[0]
		p.Name, p.Index, p.Names = name, "serving-x", slices.Concat(names, []string{name})
		return p
	}
	holds := func(t *testing.T, want int, p mcp.PersistentStore) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			r := start(t, mcp.Options{PersistTo: []mcp.PersistentStore{p}})
			if n := len(r.groups()); n != want {
				t.Errorf("%d groups are held at %s, want %d", n, p.Name, want)
			}
			r.target.SourcesComplete()
		})
	}
	s := newFakeRecorder()
	fill(t, 20, at(s, "served-a"))
	holds(t, 20, at(s, "served-b"))
	holds(t, 20, at(s, "served-b"))
	holds(t, 20, at(s, "served-c"))
	s.change(func(texts map[[2]string]string) {
		for key := range texts {
			if !strings.HasPrefix(key[0], "served-c") && key != [2]string{"serving-x", "served-c"} {
				t.Errorf("record %v, want only those of served-c", key)
			}
		}
	})
	holds(t, 0, at(s, "served-d", "served-c")) // an additional address replaces none
	holds(t, 20, at(s, "served-c", "served-d"))
	holds(t, 20, at(s, "served-e", "served-d"))             // in the place of c
	holds(t, 0, at(s, "served-f", "served-g"))              // which is which cannot be known
	holds(t, 0, at(s, "served-g", "served-f"))              // nor later
	holds(t, 20, at(s, "served-e", "served-f", "served-g")) // where each is itself
	s.fail(fmt.Errorf("%w: no right", registry.ErrRefused))
	holds(t, 0, at(s, "served-h"))
}

func TestPersistentStore_DirectoryAndRegistry(t *testing.T) {
	registryAnd := func(s *fakeRecorder, dir string) []mcp.PersistentStore {
		return append(s.of(), mcp.PersistentStore{Recorder: mcp.DirRecorder{Path: dir}, Name: "served-x"})
	}
	s, dir := newFakeRecorder(), t.TempDir()
	fill(t, 20, registryAnd(s, dir)...)
	bubble(t, "has everything where the registry has nothing", func(t *testing.T) {
		r := start(t, mcp.Options{PersistTo: registryAnd(newFakeRecorder(), dir)})
		if n := len(r.groups()); n != 20 {
			t.Errorf("%d groups held, want 20", n)
		}
	})
	bubble(t, "brings nothing back that is gone from the registry's", func(t *testing.T) {
		newer := newFakeRecorder()
		newer.texts = maps.Clone(s.texts)
		first := slices.SortedFunc(maps.Keys(newer.texts), func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })[0]
		delete(newer.texts, first)
		r := start(t, mcp.Options{PersistTo: registryAnd(newer, dir)})
		if n := len(r.groups()); n == 20 || n == 0 {
			t.Errorf("%d groups held, want those of the registry", n)
		}
	})
}

func TestDirRecorder(t *testing.T) {
	r := mcp.DirRecorder{Path: t.TempDir()}
	record := func(kind, name, text string) {
		t.Helper()
		if err := r.Record(t.Context(), kind, map[string]string{name: text}); err != nil {
			t.Fatal(err)
		}
	}
	records := func(kind string, want map[string]string) {
		t.Helper()
		got, err := r.Records(t.Context(), kind)
		if err != nil || len(got) != len(want) {
			t.Errorf("Records(%s) = %v, %v, want %v", kind, got, err, want)
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s/%s: %q, want %q", kind, name, got[name], text)
			}
		}
	}
	records("served", nil)
	record("served", "a", "") // removing what does not exist is no error
	record("served", "a", "first")
	record("served", "a", "second")
	record("served", "b", "text")
	record("other", "a", "text")
	if err := os.WriteFile(filepath.Join(r.Path, "served", "a.123.tmp"), []byte("a part"), 0o600); err != nil {
		t.Fatal(err)
	}
	records("served", map[string]string{"a": "second", "b": "text"})
	record("served", "b", "")
	records("served", map[string]string{"a": "second"})
	records("other", map[string]string{"a": "text"})

	t.Run("what a disk does not give is refused, and the old text stays", func(t *testing.T) {
		if err := os.Mkdir(filepath.Join(r.Path, "served", "dir"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := r.Record(t.Context(), "served", map[string]string{"dir": "x"}); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		if err := (mcp.DirRecorder{Path: filepath.Join(r.Path, "nowhere")}).Record(t.Context(), "k", map[string]string{"n": "x"}); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		records("served", map[string]string{"a": "second"})
	})
}
