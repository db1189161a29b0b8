package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("down")

func group(name string) registry.Group { return registry.Group{Kind: "test", Name: name} }

// selected is perService of those services for which refuse says nothing.
func selected(refuse func(*registry.Service) error) bridge.Project {
	return func(s *registry.Service) ([]registry.Entry, error) {
		if err := refuse(s); err != nil {
			return nil, &registry.LeftOut{Reason: err, All: registry.Excluded}
		}
		return perService(s)
	}
}

// perService writes one entry per offered endpoint into the group of its
// service.
func perService(s *registry.Service) ([]registry.Entry, error) {
	if s.Attributes["bad"] != "" {
		return nil, errors.New(s.Attributes["bad"])
	}
	g := group(string(s.Name))
	if s.Application != "" {
		g.Name = s.Application
	}
	var entries []registry.Entry
	if part := s.Attributes["part"]; part != "" && len(s.Endpoints) > 0 {
		entries = append(entries, registry.Entry{Group: g, Key: registry.PartPrefix + part, Value: part})
	}
	for _, e := range s.Endpoints {
		if e.Health.Offered() {
			entries = append(entries, registry.Entry{Group: g, Key: e.Address(), Value: fmt.Sprintf(`{"weight":%d}`, e.Weight)})
		}
	}
	return entries, nil
}

// service returns a service with endpoints such as 10.0.0.1:80 or, with a
// weight, 10.0.0.1:80*7.
func service(name string, addrs ...string) *registry.Service {
	s := &registry.Service{Name: registry.Name(name)}
	for _, a := range addrs {
		addr, weight, _ := strings.Cut(a, "*")
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			panic(err)
		}
		p, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			panic(err)
		}
		w, _ := strconv.Atoi("0" + weight)
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: host, Port: uint16(p), Weight: uint32(w)})
	}
	return s
}

// fleet returns n services named s0 and so on, each with m endpoints.
func fleet(n, m int) []*registry.Service {
	out := make([]*registry.Service, n)
	for i := range out {
		addrs := make([]string, m)
		for j := range addrs {
			addrs[j] = fmt.Sprintf("10.%d.%d.%d:80", i>>8, i&255, j+1)
		}
		out[i] = service("s"+strconv.Itoa(i), addrs...)
	}
	return out
}

func mine(g, addr string) registry.Held {
	return registry.Held{Entry: registry.Entry{Group: group(g), Key: addr, Value: `{"weight":0}`}, Owner: "me", Live: true}
}

func theirs(g, addr string) registry.Held {
	h := mine(g, addr)
	h.Owner, h.Value = "other", "x"
	return h
}

// A story is one test: a target, the tables of bridges that lead to it, and a
// loop that runs between them in virtual time.
type story struct {
	t       *testing.T
	target  *memory.Target
	tables  map[string]*registry.Table
	loop    *bridge.Loop
	stop    func()
	begin   time.Time
	bridges []bridge.Bridge
	opts    bridge.Options
	hooks   memory.Options
	keeps   bool // the target keeps records

	log text

	mu    sync.Mutex
	seen  []bridge.Observation
	calls []call
}

// A text is written by one goroutine and read by another.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// A call is a call to the target that ended.
type call struct {
	op    memory.Op
	group registry.Group
	at    time.Duration
}

// A session is a target that takes what an earlier session held for gone.
type session struct{ *memory.Target }

func (s session) Write(ctx context.Context, c registry.Change) error {
	c.Put = slices.Clone(c.Put)
	for i, w := range c.Put {
		if w.Old != nil && !w.Old.Live {
			c.Put[i].Old = nil
		}
	}
	return s.Target.Write(ctx, c)
}

// speed is a guard without rules about time and share.
var speed = bridge.Guard{}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, tables: map[string]*registry.Table{}, begin: time.Now()}
	s.opts = bridge.Options{
		Target: "memory", Owner: "me", Workers: 4,
		Quiet: 100 * time.Millisecond, MaxQuiet: time.Second, Refresh: 5 * time.Minute,
		Retry: registry.Backoff{Min: time.Second, Max: 30 * time.Second},
	}
	s.hooks = memory.Options{Owner: "me"}
	return s
}

// bridge adds a bridge with a guard.
func (s *story) bridge(name string, guard bridge.Guard) *story {
	s.tables[name] = registry.NewTable()
	s.bridges = append(s.bridges, bridge.Bridge{Name: name, Table: s.tables[name], Project: perService, Guard: guard})
	return s
}

func (s *story) holding(held ...registry.Held) *story {
	s.make()
	s.target.Set(held...)
	return s
}

func (s *story) make() {
	if s.target == nil {
		s.hooks.Fail = s.record
		s.target = memory.New(s.hooks)
	}
}

// record notes each call to the target.
func (s *story) record(op memory.Op, g registry.Group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call{op, g, time.Since(s.begin)})
	return nil
}

// fail makes calls to the target fail as the hook says; nil ends that.
func (s *story) fail(hook func(memory.Op, registry.Group) error) {
	s.target.Fail(func(op memory.Op, g registry.Group) error {
		err := s.record(op, g)
		if hook != nil {
			err = hook(op, g)
		}
		return err
	})
}

// failing makes calls of a kind fail.
func failing(these memory.Op, err error) func(memory.Op, registry.Group) error {
	return func(op memory.Op, _ registry.Group) error {
		if op == these {
			return err
		}
		return nil
	}
}

// starts runs the loop until the test ends, with a target in place of the
// story's if one is given.
func (s *story) starts(target ...registry.Target) *story {
	s.t.Helper()
	s.make()
	target = append(target, session{s.target})
	_, s.keeps = target[0].(registry.Recorder)
	s.opts.Observe = func(o bridge.Observation) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, o)
	}
	s.opts.Log = slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	loop, err := bridge.New(target[0], s.bridges, s.opts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.loop = loop
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(s.stop)
	synctest.Wait()
	return s
}

func (s *story) table() *registry.Table { return s.tables[s.bridges[0].Name] }

// has makes the first table report exactly these services.
func (s *story) has(services ...*registry.Service) *story {
	s.table().Replace(slices.Values(services))
	return s.in(0)
}

// dials makes the first table report exactly these services over a new
// connection.
func (s *story) dials(services ...*registry.Service) *story {
	s.table().Dialed()
	return s.has(services...)
}

// loses makes the first table tell, in one message, that n services of a fleet
// are gone.
func (s *story) loses(first, n int) *story {
	var gone []registry.Name
	for i := range n {
		gone = append(gone, registry.Name(fmt.Sprint("s", first+i)))
	}
	s.table().Apply(nil, gone)
	return s
}

func (s *story) in(d time.Duration) *story {
	if d > 0 {
		time.Sleep(d)
	}
	synctest.Wait()
	return s
}

func (s *story) holds(want ...string) *story {
	s.t.Helper()
	got := []string{}
	for _, e := range s.target.Entries() {
		got = append(got, e.Group.Name+" "+e.Key)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("after %v the target holds %v, want %v\n%s", time.Since(s.begin), got, want, s.log.String())
	}
	return s
}

func (s *story) holdsN(want int) *story {
	s.t.Helper()
	if got := len(s.target.Entries()); got != want {
		s.t.Errorf("after %v the target holds %d entries, want %d\n%s", time.Since(s.begin), got, want, s.log.String())
	}
	return s
}

func (s *story) status() bridge.Status {
	s.t.Helper()
	if err := s.loop.Alive(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	status := s.loop.Status()
	counted(s.t, status)
	return status
}

// of returns the status of a service.
func (s *story) of(name string) bridge.ServiceStatus {
	s.t.Helper()
	var out bridge.ServiceStatus
	n := 0
	for _, sv := range s.status().Services {
		if sv.Service == registry.Name(name) {
			out = sv
			n++
		}
	}
	if n > 1 {
		s.t.Errorf("%s has %d reasons", name, n)
	}
	return out
}

func (s *story) reason(name string, want bridge.Reason, detail string) *story {
	s.t.Helper()
	if got := s.of(name); got.Reason != want || !strings.Contains(got.Detail, detail) {
		s.t.Errorf("after %v the reason of %s is %q: %q, want %q: …%s…", time.Since(s.begin), name, got.Reason, got.Detail, want, detail)
	}
	return s
}

// hold returns the only hold there is.
func (s *story) hold() bridge.Hold {
	s.t.Helper()
	holds := s.status().Holds
	if len(holds) != 1 {
		s.t.Fatalf("after %v there are %d holds, want 1: %+v", time.Since(s.begin), len(holds), holds)
	}
	return holds[0]
}

func (s *story) noHold() *story {
	s.t.Helper()
	if holds := s.status().Holds; len(holds) != 0 {
		s.t.Errorf("after %v there are holds: %+v", time.Since(s.begin), holds)
	}
	return s
}

// approves and denies have a person decide about the hold of an id.
func (s *story) approves(id, who string) {
	s.t.Helper()
	s.decided(s.loop.Approve(s.t.Context(), id, who))
}

func (s *story) denies(id string) {
	s.t.Helper()
	s.decided(s.loop.Deny(s.t.Context(), id, "ann"))
}

// decided fails the test unless a decision was recorded where the target can.
func (s *story) decided(err error) {
	s.t.Helper()
	if s.keeps && err != nil || !s.keeps && !errors.Is(err, bridge.ErrUnrecorded) {
		s.t.Fatalf("after %v the decision comes to %v, where the target keeps records: %v", time.Since(s.begin), err, s.keeps)
	}
}

// count returns how many observations of a kind there were.
func (s *story) count(kind bridge.ObservationKind, op string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.seen {
		if o.Kind == kind && (op == "" || o.Op == op) {
			n += o.Count
		}
	}
	return n
}

// when returns when calls to a group happened.
func (s *story) when(op memory.Op, g string) (at []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.op == op && c.group == group(g) {
			at = append(at, c.at)
		}
	}
	return at
}

func (s *story) writes() int { return s.target.Counts().Writes }

// stories runs tests of virtual time in the order of their names.
func stories(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, tests[name]) })
	}
}

// hours leaves a story of hours of looks at what is held out of the gate, which
// has a shorter one.
func hours(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("hours of looks at what is held")
	}
}

// counted checks that what the loop counts as it goes is what it reports of one
// by one.
func counted(t *testing.T, s bridge.Status) {
	t.Helper()
	want := make(map[string]map[bridge.Reason]int)
	for _, b := range s.Bridges {
		want[b.Name] = make(map[bridge.Reason]int)
	}
	for _, sv := range s.Services {
		want[sv.Bridge][sv.Reason]++
	}
	for _, b := range s.Bridges {
		if !maps.Equal(b.Reasons, want[b.Name]) {
			t.Errorf("bridge %s counts %v of %v", b.Name, b.Reasons, want[b.Name])
		}
	}
	held := len(slices.DeleteFunc(slices.Clone(s.Holds), func(h bridge.Hold) bool { return h.Denied }))
	if c := s.Counts; c.Services != len(s.Services) || c.Holds != held || c.Conflicts != len(s.Conflicts) {
		t.Errorf("counts %+v of %d services, %d holds, %d conflicts", c, len(s.Services), held, len(s.Conflicts))
	}
}
