package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// recording is a target that keeps records.
type recording struct {
	*memory.Target
	mu    sync.Mutex
	texts map[string]map[string]string
	calls int
	wrote int
	down  bool

	denied string // a name: what is kept under it may not be read or written
}

var errDenied = fmt.Errorf("%w: not authenticated", registry.ErrRefused)

func (r *recording) Records(_ context.Context, kind string) (map[string]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	all := maps.Clone(r.texts[kind])
	if _, there := all[r.denied]; there && r.denied != "" {
		delete(all, r.denied)
		return all, errDenied
	}
	return all, nil
}

func (r *recording) Record(_ context.Context, kind, name, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return errDown
	}
	if name == r.denied && r.denied != "" {
		return errDenied
	}
	r.wrote++
	if r.texts[kind] == nil {
		r.texts[kind] = make(map[string]string)
	}
	r.texts[kind][name] = text
	if text == "" {
		delete(r.texts[kind], name)
	}
	return nil
}

// set makes storing fail, or work.
func (r *recording) set(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

func (r *recording) stored() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrote
}

func (r *recording) decisions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.texts["decisions"])
}

// recorded is held over a target that keeps records; start begins a process
// over it.
func recorded(t *testing.T) (r *recording, start func(...func(*story)) *story) {
	t.Helper()
	r = &recording{Target: memory.New(memory.Options{Owner: "me"}), texts: make(map[string]map[string]string)}
	return r, func(tune ...func(*story)) *story {
		s := newStory(t).bridge("b", bridge.DefaultGuard())
		s.target = r.Target
		for _, f := range tune {
			f(s)
		}
		return s.starts(r)
	}
}

// otherClock is what a replica sees of the records whose clock is ahead.
type otherClock struct {
	*recording
	ahead time.Duration
}

func (o otherClock) Records(ctx context.Context, kind string) (map[string]string, error) {
	all, err := o.recording.Records(ctx, kind)
	for name, text := range all {
		all[name] = later(text, -o.ahead)
	}
	return all, err
}

func (o otherClock) Record(ctx context.Context, kind, name, text string) error {
	return o.recording.Record(ctx, kind, name, later(text, o.ahead))
}

// later returns a record that says it was written so much later.
func later(text string, by time.Duration) string {
	fields := make(map[string]json.RawMessage)
	var at time.Time
	if json.Unmarshal([]byte(text), &fields) != nil || json.Unmarshal(fields["at"], &at) != nil {
		return text
	}
	fields["at"], _ = json.Marshal(at.Add(by))
	out, _ := json.Marshal(fields)
	return string(out)
}

// as makes a story that of one of several replicas.
func as(l bridge.Leadership) func(*story) {
	return func(s *story) { s.opts.Election = newElection(l) }
}

// pair returns two replicas over one target, of which the first leads until the
// other takes over.
func pair(t *testing.T, start func(...func(*story)) *story) (a, b *story, takesOver func()) {
	t.Helper()
	first, second := newElection(leader(1)), newElection(standby(1))
	a = start(func(s *story) { s.opts.Election = first })
	b = start(func(s *story) { s.opts.Election = second })
	replicas{a, b}.has(fleet(20, 2)...)
	a.in(10 * time.Minute)
	return a, b, func() {
		first.set(standby(2))
		second.set(leader(2))
	}
}

// replicas are told the same.
type replicas []*story

func (r replicas) has(services ...*registry.Service) {
	for _, s := range r {
		s.has(services...)
	}
}

func (r replicas) dials(services ...*registry.Service) {
	for _, s := range r {
		s.dials(services...)
	}
}

func (r replicas) loseTen() {
	for _, s := range r {
		s.loses(0, 10)
	}
}

func TestDecisions(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"a denial is not forgotten where another replica takes over": func(t *testing.T) {
			e := newElection(leader(1))
			r, start := recorded(t)
			s := start(func(s *story) { s.opts.Election = e }).has(fleet(20, 2)...).in(10 * time.Minute)
			s.loses(0, 10).in(0)
			s.denies(s.hold().ID)
			s.in(10 * time.Second)
			e.set(standby(2))
			if s.in(time.Minute); r.decisions() != 1 {
				t.Errorf("%d decisions are kept", r.decisions())
			}
			e.set(leader(3))
			s.in(time.Minute).dials(rest()...).in(time.Hour).holdsN(40)
			if h := s.hold(); !h.Denied {
				t.Errorf("%+v", h)
			}
		},
		"a denial is not forgotten by a restart where several bridges lead to the target": func(t *testing.T) {
			_, start := recorded(t)
			two := func(s *story) { s.bridge("c", bridge.DefaultGuard()) }
			begin := func(services []*registry.Service) *story {
				s := start(two)
				s.tables["c"].Replace(slices.Values([]*registry.Service{service("other", "10.9.0.1:80")}))
				return s.has(services...).in(10 * time.Minute)
			}
			s := begin(fleet(20, 2))
			s.loses(0, 10).in(0)
			s.denies(s.hold().ID)
			s.in(10 * time.Second).stop()
			s = begin(rest())
			s.tables["c"].Dialed()
			s.tables["c"].Replace(slices.Values([]*registry.Service{service("other", "10.9.0.1:80")}))
			s.dials(rest()...).in(time.Hour).holdsN(41)
			if h := s.hold(); !h.Denied {
				t.Errorf("%+v", h)
			}
		},
		"what cannot be kept for long is kept once it can, and no more than that": func(t *testing.T) {
			r, start := recorded(t)
			s := start(as(leader(1))).has(fleet(20, 2)...).in(10 * time.Minute)
			r.set(true)
			s.loses(0, 10).in(2 * time.Hour).hold()
			r.set(false)
			s.in(30 * time.Second)
			if n := r.stored(); n > 11 { // the hold, and of each of ten services
				t.Errorf("%d records were stored of one hold", n)
			}
		},
		"a denial is not forgotten by a restart, and ends for what is claimed again": func(t *testing.T) {
			r, start := recorded(t)
			s := start().has(fleet(20, 2)...).in(10 * time.Minute)
			s.loses(0, 10).in(0)
			s.denies(s.hold().ID)
			s.in(10 * time.Second).stop()
			s = start().has(rest()...).in(day()).holdsN(40) // never confirmed either
			if h := s.hold(); !h.Denied {
				t.Errorf("%+v", h)
			}
			s.table().Put(fleet(20, 2)[3])
			s.in(time.Minute)
			if h := s.hold(); !h.Denied || len(h.Entries) != 18 || r.decisions() != 0 {
				t.Errorf("%+v, %d decisions are kept", h, r.decisions())
			}
		},
		"who leads no more has no hold of its own": func(t *testing.T) {
			e, events := newElection(leader(1)), (*[]bridge.Event)(nil)
			_, start := recorded(t)
			s := start(func(s *story) { s.opts.Election, events = e, listens(s) }).has(fleet(20, 2)...).in(10 * time.Minute)
			s.loses(0, 10).in(time.Minute).hold()
			e.set(standby(2))
			s.in(0)
			if e := (*events)[len(*events)-1]; e.Kind != bridge.EventRelease || !strings.Contains(e.Why, "another replica") {
				t.Errorf("%+v", e)
			}
		},
		"any replica shows the hold of another and takes the word on it": func(t *testing.T) {
			_, start := recorded(t)
			a, b := start(as(leader(1))), start(as(standby(1)))
			replicas{a, b}.has(fleet(20, 2)...)
			a.in(10 * time.Minute)
			replicas{a, b}.loseTen()
			id := a.in(time.Minute).hold().ID
			if h := b.hold(); h.ID != id || len(h.Entries) != 20 {
				t.Fatalf("the other replica shows %+v", h)
			}
			b.denies(id)
			if h := a.in(10 * time.Second).hold(); !h.Denied {
				t.Errorf("%+v", h)
			}
			b.approves(id, "bob")
			a.in(time.Minute).holdsN(20).noHold()
			b.noHold()
		},
		"a word at a replica counts whatever its clock says, and it shows the holds of the others": func(t *testing.T) {
			for _, ahead := range []time.Duration{-time.Hour, -6 * time.Minute, 3 * time.Minute, time.Hour} {
				r, start := recorded(t)
				a := start(as(leader(1)))
				b := newStory(t).bridge("b", bridge.DefaultGuard())
				b.target = r.Target
				as(standby(1))(b)
				b.starts(otherClock{r, ahead})
				replicas{a, b}.has(fleet(20, 2)...)
				a.in(10 * time.Minute)
				replicas{a, b}.loseTen()
				id := a.in(5 * time.Minute).hold().ID
				if h := b.hold(); h.ID != id {
					t.Fatalf("%s ahead: the other replica shows %+v", ahead, h)
				}
				b.approves(id, "bob")
				a.in(time.Minute).holdsN(20).noHold()
				b.in(10 * time.Minute).noHold()
				if r.decisions() != 0 {
					t.Errorf("%s ahead: %d decisions are kept", ahead, r.decisions())
				}
				a.stop()
				b.stop()
			}
		},
		"what no person approved counts for the one that takes over": func(t *testing.T) {
			_, start := recorded(t)
			a, b, takesOver := pair(t, start)
			replicas{a, b}.loseTen()
			id := a.in(time.Minute).hold().ID
			replicas{a, b}.dials(fleet(20, 2)[12:]...) // two more are missing, which settles
			a.in(30 * time.Second)
			a.approves(id, "ann")
			for _, s := range []*story{a, b} {
				s.in(3 * time.Minute)
			}
			left := len(a.target.Entries())
			takesOver()
			for _, s := range []*story{a, b} {
				s.in(time.Minute).loses(12, 2) // four of ten by now
			}
			b.in(10 * time.Minute).holdsN(left).hold()
		},
		"a decision that cannot be stored is stored later": func(t *testing.T) {
			r, start := recorded(t)
			s := start().has(fleet(20, 2)...).in(10 * time.Minute)
			s.loses(0, 10).in(11 * time.Second)
			s.loses(10, 8).in(0)
			r.set(true)
			for _, h := range s.status().Holds {
				if err := s.loop.Deny(t.Context(), h.ID, "ann"); !errors.Is(err, bridge.ErrUnrecorded) || !strings.Contains(err.Error(), "down") {
					t.Errorf("a decision that could not be recorded: %v", err)
				}
			}
			s.in(time.Minute)
			r.set(false)
			if s.in(10 * time.Second); r.decisions() != 1 {
				t.Errorf("%d decisions are kept", r.decisions())
			}
		},
		"a record that is refused costs itself": func(t *testing.T) {
			r, start := recorded(t)
			a, b, _ := pair(t, start)
			r.mu.Lock()
			r.texts["decisions"] = map[string]string{"denied": "{}"}
			r.denied = "denied"
			r.mu.Unlock()
			replicas{a, b}.loseTen()
			id := a.in(time.Minute).hold().ID
			b.approves(id, "ann")
			a.in(time.Minute).holdsN(20).noHold()
			if told := strings.Count(a.log.String(), "not authenticated"); told != 1 {
				t.Errorf("the reason is told %d times: %s", told, a.log.String())
			}
		},
		"what may not be kept of one hold does not keep the word on another": func(t *testing.T) {
			r, start := recorded(t)
			s := start(as(leader(1))).has(fleet(20, 2)...).in(10 * time.Minute)
			s.loses(0, 10).in(0)
			r.mu.Lock()
			r.denied = s.hold().ID
			r.mu.Unlock()
			s.in(11*time.Second).loses(10, 8).in(time.Second)
			for _, h := range s.status().Holds {
				if err := s.loop.Deny(t.Context(), h.ID, "ann"); err != nil != (h.ID == r.denied) {
					t.Errorf("%s: %v", h.ID, err)
				}
			}
			if s.in(10 * time.Second); r.decisions() != 1 {
				t.Errorf("%d decisions are kept", r.decisions())
			}
		},
		"a decision that may not be kept counts for this process": func(t *testing.T) {
			r, start := recorded(t)
			s := start().has(fleet(20, 2)...).in(10 * time.Minute)
			s.loses(0, 10).in(0)
			r.mu.Lock()
			r.denied = s.hold().ID
			r.mu.Unlock()
			if err := s.loop.Approve(t.Context(), s.hold().ID, "ann"); !errors.Is(err, bridge.ErrUnrecorded) {
				t.Errorf("approval: %v", err)
			}
			s.in(10 * time.Second).holdsN(20).noHold()
		},
		"without a hold the records are left alone": func(t *testing.T) {
			r, start := recorded(t)
			start().has(fleet(20, 2)...).in(day())
			if r.calls > 3 { // at the start
				t.Errorf("%d looks", r.calls)
			}
		},
		"a denial of what a standby had not read yet counts after it took over": func(t *testing.T) {
			hours(t)
			_, start := recorded(t)
			a, b, takesOver := pair(t, start)
			all := fleet(20, 3)
			replicas{a, b}.has(all...)
			a.in(time.Second)
			replicas{a, b}.has(fleet(20, 2)...)
			a.in(10 * time.Second)
			replicas{a, b}.loseTen()
			id := a.in(70 * time.Second).hold().ID
			a.denies(id)
			a.in(10 * time.Second)
			n := len(a.hold().Entries)
			b.fail(slowly)
			takesOver()
			b.in(time.Hour)
			if h := b.hold(); !h.Denied || len(h.Entries) != n {
				t.Errorf("%d of %d: %+v", len(h.Entries), n, h)
			}
		},
		"a denial is not forgotten by who publishes on as a standby": func(t *testing.T) {
			r, _ := recorded(t)
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.target = r.Target
			e := newElection(leader(1))
			s.opts.Election = e
			s.starts(sharing{r}).has(fleet(20, 2)...).in(10 * time.Minute)
			s.loses(0, 10).in(0)
			s.denies(s.hold().ID)
			s.in(time.Minute)
			for i := 1; i < 10; i++ {
				s.table().Put(fleet(20, 2)[i])
			}
			s.in(2 * time.Hour).holdsN(40)
			e.set(standby(2))
			s.in(time.Hour).holdsN(40).hold()
		},
		"an approval is not good for the same set after a restart": func(t *testing.T) {
			r, start := recorded(t)
			s := start().has(fleet(20, 2)...).in(10 * time.Minute)
			s.loses(0, 10).in(0)
			s.approves(s.hold().ID, "ann")
			s.in(time.Minute).holdsN(20)
			s.has(fleet(20, 2)...).in(day()).holdsN(40)
			if r.decisions() != 0 {
				t.Errorf("%d decisions are kept", r.decisions())
			}
			s.stop()
			s.fail(slowly)
			s = start().has(fleet(20, 2)...).in(10 * time.Minute).holdsN(40)
			s.loses(0, 10).in(time.Minute).holdsN(40).hold()
		},
		"a word at a standby counts after it took over": func(t *testing.T) {
			r, start := recorded(t)
			a, b, takesOver := pair(t, start)
			replicas{a, b}.loseTen()
			id := a.in(time.Minute).hold().ID
			b.in(6 * time.Second)
			a.stop() // the leader dies
			b.denies(id)
			b.in(7 * time.Second)
			takesOver()
			b.in(2 * time.Minute).holdsN(40)
			if h := b.hold(); !h.Denied {
				t.Errorf("%+v %d", h, r.decisions())
			}
		},
		"what could not be stored by who led does not take the place of what was stored since": func(t *testing.T) {
			r, start := recorded(t)
			first, second, cut := newElection(leader(1)), newElection(standby(1)), &cutOff{recording: r}
			a := newStory(t).bridge("b", bridge.DefaultGuard())
			a.target, a.opts.Election = r.Target, first
			a.starts(cut)
			b := start(func(s *story) { s.opts.Election = second })
			replicas{a, b}.has(fleet(20, 2)...)
			a.in(10 * time.Minute)
			cut.down.Store(true)
			replicas{a, b}.loseTen()
			a.in(time.Minute).hold()
			first.set(standby(2))
			second.set(leader(2))
			b.denies(b.in(2 * time.Minute).hold().ID)
			b.in(time.Minute)
			cut.down.Store(false)
			b.in(10 * time.Minute)
			second.set(standby(3))
			first.set(leader(3))
			if h := a.in(2 * time.Minute).hold(); !h.Denied {
				t.Errorf("%+v", h)
			}
		},
		"calls about records keep none about groups waiting": func(t *testing.T) {
			r, _ := recorded(t)
			s := newStory(t).bridge("b", bridge.DefaultGuard())
			s.target, s.opts.Workers = r.Target, 1
			s.starts(mute{r}).in(time.Second)
			s.has(service("a", "10.0.0.1:80")).in(time.Second).holds("a 10.0.0.1:80")
		},
	})
}

// slowly has readings take a second.
func slowly(op memory.Op, _ registry.Group) error {
	if op == memory.OpRead {
		time.Sleep(time.Second)
	}
	return nil
}

// sharing is a target in which each replica publishes for itself, and that keeps records.
type sharing struct{ *recording }

func (sharing) Shared() {}

// cutOff is a target that keeps records, but not those of one replica for a while.
type cutOff struct {
	*recording
	down atomic.Bool
}

func (c *cutOff) Record(ctx context.Context, kind, name, text string) error {
	if c.down.Load() {
		return errDown
	}
	return c.recording.Record(ctx, kind, name, text)
}

// mute is a target that never answers about records.
type mute struct{ *recording }

func (mute) Records(ctx context.Context, _ string) (map[string]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
