package history_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/history"
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

// notification is a subscriber that a test notifies.
type notification struct {
	mu   sync.Mutex
	seen []harness.Seen
}

func (s *notification) send(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, harness.Seen{At: time.Now(), Addresses: addresses})
}

func (s *notification) Since(at time.Time) []harness.Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.seen), func(l harness.Seen) bool { return !l.At.After(at) })
}

func (s *notification) Last() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) == 0 {
		return nil
	}
	return s.seen[len(s.seen)-1].Addresses
}

func (*notification) Forget(time.Time) {}

// verdict records what would fail a test.
type verdict struct {
	testing.TB

	text []string
}

func (*verdict) Helper() {}
func (v *verdict) Errorf(format string, args ...any) {
	v.text = append(v.text, fmt.Sprintf(format, args...))
}

// judged returns what is said of a history, of which nothing has been judged.
func judged(t *testing.T, r *history.Recorder) string {
	t.Helper()
	v := &verdict{TB: t}
	r.Judge(v)
	return strings.Join(v.text, "\n")
}

func TestRecorder(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	both := []guarantees.Guarantee{guarantees.NeverLess, guarantees.NoSpuriousWrite}
	for name, tt := range map[string]struct {
		story func(r *history.Recorder, s *notification)
		wants []guarantees.Guarantee
	}{
		"what goes at its source goes": {func(r *history.Recorder, s *notification) {
			r.Has("s", "a")
			s.send("a")
		}, nil},
		"a list lacks what was there all the time": {func(_ *history.Recorder, s *notification) {
			s.send("a")
			s.send("a", "b")
		}, []guarantees.Guarantee{guarantees.NeverLess, guarantees.NoSpuriousWrite}},
		"as servers may do": {func(r *history.Recorder, s *notification) {
			defer r.Allow(both)()
			s.send("a")
			s.send("a", "b")
		}, nil},
		"as servers may do, but not here": {func(r *history.Recorder, s *notification) {
			defer r.Allow(both, "s")()
			s.send("a")
			s.send("a", "b")
		}, []guarantees.Guarantee{guarantees.NeverLess, guarantees.NoSpuriousWrite}},
		"as servers may have done before": {func(r *history.Recorder, s *notification) {
			r.Allow(both)()
			s.send("a")
			s.send("a", "b")
		}, []guarantees.Guarantee{guarantees.NeverLess, guarantees.NoSpuriousWrite}},
		"what was withdrawn comes back for a moment": {func(r *history.Recorder, s *notification) {
			r.Has("s", "a")
			s.send("a")
			s.send("a", "b")
			s.send("a")
		}, []guarantees.Guarantee{guarantees.NoResurrection, guarantees.NoSpuriousWrite}},
		"in the end one is missing": {func(r *history.Recorder, s *notification) {
			r.Has("s", "a", "b", "c")
			s.send("a", "b")
		}, []guarantees.Guarantee{guarantees.EventuallySame}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := history.New(), &notification{}
			r.Subscribe("s", "consumer", s)
			r.Has("s", "a", "b")
			s.send()
			s.send("a", "b")
			if text := judged(t, r); text != "" {
				t.Fatal(text)
			}
			tt.story(r, s)
			text := judged(t, r)
			for _, g := range guarantees.All() {
				if want := slices.Contains(tt.wants, g); strings.Contains(text, string(g)+" does not hold for s") != want {
					t.Errorf("%s: want %t:\n%s", g, want, text)
				}
			}
		})
	}
}

// A failed history is printed as the least that shows it.
func TestRecorder_Shortest(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r, s := history.New(), &notification{}
	r.Subscribe("s", "consumer", s)
	r.Has("s", "a", "b")
	s.send("a", "b")
	for i := range 50 {
		r.Has("s", "a", "b", fmt.Sprint("c", i))
		s.send("a", "b", fmt.Sprint("c", i))
	}
	s.send("a", "c49")
	s.send("a", "b", "c49")
	text := judged(t, r)
	first, _, _ := strings.Cut(text, "\nNoSpuriousWrite")
	if lines := strings.Split(first, "\n"); len(lines) != 5 || !strings.Contains(lines[2], "desired s map[b:there]") ||
		!strings.Contains(lines[3], "by consumer map[b:there]") || !strings.Contains(lines[4], "by consumer map[]") {
		t.Error(text)
	}
}

// scribe is a client of ZooKeeper that writes as a replica does: each
// transaction checks a fence that was raised to a term.
type scribe struct {
	conn *zk.Conn
	name string
}

const fence = "/xds-bridge/me/fence/0"

func newScribe(t *testing.T, server, name string) *scribe {
	t.Helper()
	conn, _, err := zk.Connect([]string{server}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return &scribe{conn, name}
}

func (s *scribe) raise(t *testing.T, term int64) (version int32) {
	t.Helper()
	stat, err := s.conn.Set(fence, []byte(fmt.Sprintf("%d %s", term, s.name)), -1)
	if err != nil {
		t.Fatal(err)
	}
	return stat.Version
}

func (s *scribe) write(t *testing.T, version int32, ops ...any) {
	t.Helper()
	if _, err := s.conn.Multi(append([]any{&zk.CheckVersionRequest{Path: fence, Version: version}}, ops...)...); err != nil {
		t.Fatal(err)
	}
}

func create(port int) any {
	return &zk.CreateRequest{Path: node(port), Acl: zk.WorldACL(zk.PermAll)}
}

func remove(port int) any { return &zk.DeleteRequest{Path: node(port), Version: -1} }

const parent = "/plain/s"

func address(port int) string { return fmt.Sprint("127.0.0.1:", port) }
func node(port int) string    { return parent + "/" + address(port) }

// What a ZooKeeper says was written is judged, and distinguished from what the test did
// itself.
func TestRecorder_ZooKeeperLog(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		story func(t *testing.T, r *history.Recorder, test *harness.Znodes, one, two *scribe, version int32)
		wants guarantees.Guarantee
	}{
		"a change is followed": {func(t *testing.T, r *history.Recorder, _ *harness.Znodes, one, _ *scribe, version int32) {
			r.Has("s", address(1), address(2))
			one.write(t, version, create(2))
		}, ""},
		"somebody else deletes an entry, and it is written again": {func(t *testing.T, _ *history.Recorder, test *harness.Znodes, one, _ *scribe, version int32) {
			test.Delete(t, node(1))
			one.write(t, version, create(1))
		}, ""},
		"the other one leads next": {func(t *testing.T, r *history.Recorder, _ *harness.Znodes, _, two *scribe, _ int32) {
			r.Has("s", address(1), address(2))
			two.write(t, two.raise(t, 2), create(2))
		}, ""},
		"two write in one term": {func(t *testing.T, r *history.Recorder, _ *harness.Znodes, _, two *scribe, _ int32) {
			r.Has("s", address(1), address(2))
			two.write(t, two.raise(t, 1), create(2))
		}, guarantees.OneWriter},
		"an entry is deleted and written without a cause": {func(t *testing.T, _ *history.Recorder, _ *harness.Znodes, one, _ *scribe, version int32) {
			one.write(t, version, remove(1))
			one.write(t, version, create(1))
		}, guarantees.NoSpuriousWrite},
		"an entry of another is deleted": {func(t *testing.T, r *history.Recorder, test *harness.Znodes, one, _ *scribe, version int32) {
			test.Create(t, node(3), "")
			one.write(t, version, remove(3))
			r.Has("s", address(1))
		}, guarantees.NoForeign},
		"what was withdrawn is written again": {func(t *testing.T, r *history.Recorder, _ *harness.Znodes, one, _ *scribe, version int32) {
			r.Has("s", address(1), address(2))
			one.write(t, version, create(2))
			r.Has("s", address(1))
			one.write(t, version, remove(2))
			one.write(t, version, create(2))
			one.write(t, version, remove(2))
		}, guarantees.NoResurrection},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := harness.StartZooKeeper(t)
			test := harness.Connect(t, server.Address)
			test.Create(t, fence, "0 nobody")
			test.Create(t, parent, "")
			r := history.New()
			r.Subscribe("s", "consumer", test.Watch(t, parent))
			r.Writes(harness.Log(server), map[string]string{parent: "s"}, test)
			one, two := newScribe(t, server.Address, "one"), newScribe(t, server.Address, "two")
			version := one.raise(t, 1)
			r.Has("s", address(1))
			one.write(t, version, create(1))
			seen(t, r)
			if text := judged(t, r); text != "" {
				t.Fatal(text)
			}
			tt.story(t, r, test, one, two, version)
			seen(t, r)
			text := judged(t, r)
			if tt.wants == "" && text != "" || !strings.Contains(text, string(tt.wants)) {
				t.Errorf("want %s:\n%s", tt.wants, text)
			}
		})
	}
}

func seen(t *testing.T, r *history.Recorder) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the subscriber sees it", func() error { return r.Shown("s") })
}
