package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
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

const ms = time.Millisecond

var (
	errDown = errors.New("down")
	errLost = errors.New("connection to istiod lost")
)

// speed is a guard without rules about time and share.
var speed = bridge.Guard{}

// timed is the default guard without the rules on how much may go.
func timed() bridge.Guard {
	g := bridge.DefaultGuard()
	g.Share = 1
	return g
}

func group(name string) registry.Group { return registry.Group{Kind: "test", Name: name} }

// perService writes one entry per offered endpoint into the group of its service.
// Attributes of the service change what it does.
func perService(s *registry.Service) (entries []registry.Entry, err error) {
	g := group(string(s.Name))
	if s.Application != "" {
		g.Name = s.Application
	}
	for key, value := range s.Attributes {
		switch key {
		case "bad":
			return nil, errors.New(value)
		case "keyless":
			return nil, nil
		case "skipped":
			return nil, &registry.LeftOut{Reason: errors.New(value), All: registry.Skipped}
		case "unreachable":
			return nil, &registry.LeftOut{Reason: errors.New(value), All: registry.Unwritable}
		case "partly":
			err = &registry.LeftOut{Reason: errors.New(value)}
		case "pause": // of the loop
			d, _ := time.ParseDuration(value)
			time.Sleep(d)
		case "part":
			if len(s.Endpoints) > 0 {
				entries = append(entries, registry.Entry{Group: g, Key: registry.PartPrefix + value, Value: value})
			}
		}
	}
	for _, e := range s.Endpoints {
		if e.Health.Offered() {
			entries = append(entries, registry.Entry{Group: g, Key: e.Address(), Value: fmt.Sprintf(`{"weight":%d}`, e.Weight)})
		}
	}
	return entries, err
}

// headed writes a group's own entry before those of its endpoints.
func headed(s *registry.Service) ([]registry.Entry, error) {
	entries, err := perService(s)
	head := registry.Entry{Group: group(string(s.Name)), Key: registry.HeadKey, Value: "head"}
	return append([]registry.Entry{head}, entries...), err
}

// service returns a service with endpoints such as 10.0.0.1:80 or, with a weight,
// 10.0.0.1:80*7.
func service(name string, addrs ...string) *registry.Service {
	s := &registry.Service{Name: registry.Name(name)}
	for _, a := range addrs {
		addr, weight, _ := strings.Cut(a, "*")
		at := netip.MustParseAddrPort(addr)
		w, _ := strconv.Atoi("0" + weight)
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: at.Addr().String(), Port: at.Port(), Weight: uint32(w)})
	}
	return s
}

// with returns a service with an attribute for perService.
func with(s *registry.Service, key, value string) *registry.Service {
	s.Attributes = registry.Attributes{key: value}
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

func stored(services ...*registry.Service) (list []registry.Stored) {
	for _, s := range services {
		for _, e := range s.Endpoints {
			list = append(list, mine(string(s.Name), e.Address()))
		}
	}
	return list
}

func mine(g, addr string) registry.Stored {
	return registry.Stored{Entry: registry.Entry{Group: group(g), Key: addr, Value: `{"weight":0}`}, Owner: "me", Live: true}
}

func theirs(g, addr string) registry.Stored {
	h := mine(g, addr)
	h.Owner, h.Value = "other", "x"
	return h
}

// A story is one test: a target, the tables of bridges that lead to it, and a loop
// that runs between them in virtual time. Its methods are steps, and return it.
type story struct {
	*testing.T

	target   *fake
	records  *recorder // nil: the target keeps none
	election *election // nil: there is one replica
	tables   map[string]*registry.Table
	bridges  []bridge.Bridge
	opts     bridge.Options
	loop     *bridge.Loop
	stop     func()
	begin    time.Time
	log      strings.Builder
	seen     list[bridge.Observation]
	events   list[bridge.Event]
}

func stories(t *testing.T, guard bridge.Guard, tests map[string]func(*story)) {
	t.Helper()
	inBubbles(t, func(t *testing.T) *story { return newStory(t).bridge("b", guard) }, tests)
}

// inBubbles runs tests in virtual time, each with a world of its own.
func inBubbles[World any](t *testing.T, begin func(*testing.T) World, tests map[string]func(World)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(begin(t)) })
		})
	}
}

func newStory(t *testing.T) *story {
	t.Helper()
	return &story{
		T: t, target: newFake(memory.Options{}), tables: make(map[string]*registry.Table), begin: time.Now(),
		opts: bridge.Options{
			Target: "memory", Owner: "me", Workers: 4,
			Debounce: 100 * ms, MaxDebounce: time.Second, Refresh: 5 * time.Minute,
			Retry: registry.Backoff{Min: time.Second, Max: 30 * time.Second},
		},
	}
}

func (s *story) bridge(name string, guard bridge.Guard) *story {
	s.tables[name] = registry.NewTable()
	s.bridges = append(s.bridges, bridge.Bridge{Name: name, Table: s.tables[name], Project: perService, Guard: guard})
	return s
}

// elected makes the story that of one of several replicas.
func (s *story) elected(l bridge.Leadership) *story {
	s.election = &election{changed: make(chan struct{}, 1)}
	s.election.now.Store(&l)
	s.opts.Election = s.election
	return s
}

func (s *story) recorded() *story {
	s.records = &recorder{fake: s.target, records: &records{texts: make(bridge.Records)}}
	return s
}

func (s *story) storing(list ...registry.Stored) *story {
	s.target.Set(list...)
	return s
}

// fail makes calls to the target fail as the hook says; nil ends that.
func (s *story) fail(hook func(memory.Op, registry.Group) error) *story {
	s.target.hook.Store(&hook)
	return s
}

// failing makes calls of a kind fail, for these groups or, where none are given, all.
func failing(kind memory.Op, err error, groups ...string) func(memory.Op, registry.Group) error {
	return func(op memory.Op, g registry.Group) error {
		if op == kind && (len(groups) == 0 || slices.Contains(groups, g.Name)) {
			return err
		}
		return nil
	}
}

func down(memory.Op, registry.Group) error { return errDown }

// new returns a loop of the story that does not run.
func (s *story) new(target registry.Target) *bridge.Loop {
	s.Helper()
	loop, err := bridge.New(target, s.bridges, s.opts)
	if err != nil {
		s.Fatal(err)
	}
	return loop
}

// starts runs the loop until the test ends, with the given target instead of the
// story's, if there is one.
func (s *story) starts(target ...registry.Target) *story {
	s.Helper()
	if s.records != nil {
		target = append(target, s.records)
	}
	target = append(target, s.target)
	s.opts.Observe, s.opts.OnEvent = s.seen.add, s.events.add
	s.opts.Log = slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	s.loop = s.new(target[0])
	s.stop = background(s, s.loop.Run)
	return s.in(0)
}

// background runs something until the test ends or stop is called.
func background(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// anotherProcess returns another process over the same target, which has not started.
func (s *story) anotherProcess() *story {
	next := newStory(s.T).bridge("b", s.bridges[0].Guard)
	if next.target = s.target; s.records != nil {
		next.records = &recorder{fake: s.target, records: s.records.records}
	}
	return next
}

func (s *story) again() *story {
	s.stop()
	return s.anotherProcess()
}

func (s *story) table() *registry.Table { return s.tables[s.bridges[0].Name] }

// reports makes the first table report exactly these services.
func (s *story) reports(services ...*registry.Service) *story {
	s.table().Replace(slices.Values(services))
	return s
}

// has starts the loop, and then makes the first table report exactly these services.
func (s *story) has(services ...*registry.Service) *story {
	s.Helper()
	if s.loop == nil {
		s.starts()
	}
	return s.reports(services...).in(0)
}

// also makes the table of another bridge report exactly these services.
func (s *story) also(name string, services ...*registry.Service) *story {
	s.tables[name].Replace(slices.Values(services))
	return s
}

// dials makes the first table report exactly these services over a new connection.
func (s *story) dials(services ...*registry.Service) *story {
	s.table().Dialed()
	return s.has(services...)
}

func (s *story) put(sv *registry.Service) *story      { s.table().Put(sv); return s }
func (s *story) delete(name registry.Name) *story     { s.table().Delete(name); return s }
func (s *story) stale(err error) *story               { s.table().Stale(err); return s }
func (s *story) unknown(scope string, e error) *story { s.table().Unknown(scope, e); return s }

// loses makes the first table report, in one message, that n services of a fleet are
// gone.
func (s *story) loses(first, n int) *story {
	var gone []registry.Name
	for i := range n {
		gone = append(gone, registry.Name(fmt.Sprint("s", first+i)))
	}
	s.table().Apply(nil, gone)
	return s
}

// in lets time pass, and then the loop do its due work.
func (s *story) in(d time.Duration) *story {
	if d > 0 {
		time.Sleep(d)
	}
	synctest.Wait()
	return s
}

func (s *story) resync() *story {
	s.Helper()
	if err := s.loop.Resync(s.Context()); err != nil {
		s.Fatal(err)
	}
	return s
}

// The steps below are checks, which fail the test.

func (s *story) is(what string, got, want any) *story {
	s.Helper()
	if !reflect.DeepEqual(got, want) {
		s.Errorf("after %v %s = %v, want %v\n%s", time.Since(s.begin), what, got, want, s.log.String())
	}
	return s
}

func (s *story) between(what string, got, least, most int) *story {
	s.Helper()
	if got < least || got > most {
		s.Errorf("after %v %s = %d, want %d to %d\n%s", time.Since(s.begin), what, got, least, most, s.log.String())
	}
	return s
}

func (s *story) says(what, got, want string) *story {
	s.Helper()
	if !strings.Contains(got, want) {
		s.Errorf("after %v %s = %q, want …%s…", time.Since(s.begin), what, got, want)
	}
	return s
}

func (s *story) stores(want ...string) *story {
	s.Helper()
	got := []string{}
	for _, e := range s.target.Entries() {
		got = append(got, e.Group.Name+" "+e.Key)
	}
	return s.is("Entries()", got, append([]string{}, want...))
}

func (s *story) storesN(want int) *story {
	s.Helper()
	return s.is("len(Entries())", len(s.target.Entries()), want)
}

func (s *story) weighs(want ...int) *story {
	s.Helper()
	got, values := []string{}, []string{}
	for _, e := range s.target.Entries() {
		got = append(got, e.Value)
	}
	for _, w := range want {
		values = append(values, fmt.Sprintf(`{"weight":%d}`, w))
	}
	return s.is("values", got, values)
}

func (s *story) wrote(put, deleted int) {
	s.Helper()
	c := s.target.Counts()
	s.is("entries put and deleted", []int{c.Put, c.Deleted}, []int{put, deleted})
}

func (s *story) status() bridge.Status {
	s.Helper()
	if err := s.loop.Alive(s.Context()); err != nil {
		s.Fatal(err)
	}
	return s.loop.Status()
}

func (s *story) inSync(want bool) *story {
	s.Helper()
	return s.is("InSync()", s.status().InSync(), want)
}

func (s *story) of(name string) bridge.ServiceStatus {
	s.Helper()
	list := slices.DeleteFunc(s.status().Services, func(sv bridge.ServiceStatus) bool { return sv.Service != registry.Name(name) })
	if len(list) > 1 {
		s.Errorf("Status() shows %s %d times, want once", name, len(list))
	}
	return append(list, bridge.ServiceStatus{})[0]
}

func (s *story) reason(name string, want bridge.Reason, detail string) *story {
	s.Helper()
	got := s.of(name)
	return s.is("reason of "+name+": "+got.Detail, got.Reason, want).says("detail of "+name, got.Detail, detail)
}

func (s *story) hold() bridge.Hold {
	s.Helper()
	holds := s.status().Holds
	if len(holds) != 1 {
		s.Fatalf("after %v Holds = %+v, want one\n%s", time.Since(s.begin), holds, s.log.String())
	}
	return holds[0]
}

func (s *story) noHold() *story {
	s.Helper()
	return s.is("Holds", s.status().Holds, []bridge.Hold{})
}

// same fails the test unless the only hold is what another was.
func (s *story) same(want bridge.Hold) *story {
	s.Helper()
	h := s.hold()
	return s.is("hold", []any{h.ID, h.Reason, h.Release, h.Denied}, []any{want.ID, want.Reason, want.Release, want.Denied})
}

func (s *story) denied(entries int) *story {
	s.Helper()
	h := s.hold()
	return s.is("denied hold", []any{h.Denied, len(h.Entries)}, []any{true, entries})
}

// approves approves the hold of an id or, if none is given, the only
// one.
func (s *story) approves(id ...string) *story { s.Helper(); return s.decides(s.loop.Approve, id) }

func (s *story) denies(id ...string) *story { s.Helper(); return s.decides(s.loop.Deny, id) }

// decides fails the test unless the decision is recorded where the target can.
func (s *story) decides(decide func(ctx context.Context, id, who string) error, id []string) *story {
	s.Helper()
	if len(id) == 0 {
		id = []string{s.hold().ID}
	}
	err := decide(s.Context(), id[0], "ann")
	if s.records != nil && err != nil || s.records == nil && !errors.Is(err, bridge.ErrUnrecorded) {
		s.Fatalf("after %v a decision = %v, where the target keeps records: %v", time.Since(s.begin), err, s.records != nil)
	}
	return s
}

func (s *story) count(kind bridge.ObservationKind, op string) (n int) {
	for _, o := range s.seen.get() {
		if o.Kind == kind && (op == "" || o.Op == op) {
			n += o.Count
		}
	}
	return n
}

// emitted returns the events of these kinds; where none are given, of all but writes.
func (s *story) emitted(kinds ...bridge.EventKind) (list []bridge.Event) {
	for _, e := range s.events.get() {
		if slices.Contains(kinds, e.Kind) || len(kinds) == 0 && e.Kind != bridge.EventApplied {
			list = append(list, e)
		}
	}
	return list
}

func (s *story) logged(text string, want int) *story {
	s.Helper()
	return s.is("logged "+text, strings.Count(s.log.String(), text), want)
}

func (s *story) made(op memory.Op) []call {
	return slices.DeleteFunc(s.target.calls.get(), func(c call) bool { return c.op != op })
}

func (s *story) when(op memory.Op, g string) (at []time.Duration) {
	for _, c := range s.made(op) {
		if c.group == group(g) {
			at = append(at, c.at.Sub(s.begin))
		}
	}
	return at
}

func seconds(list ...float64) (at []time.Duration) {
	for _, s := range list {
		at = append(at, time.Duration(s*float64(time.Second)))
	}
	return at
}

func (s *story) writes() int { return int(s.target.writes.Load()) }

// awaitsIdle waits for the loop to be idle, for at most d.
func (s *story) awaitsIdle(d time.Duration) (bridge.Status, time.Duration, error) {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	start := time.Now()
	status, err := s.loop.AwaitIdle(ctx)
	return status, time.Since(start), err
}
