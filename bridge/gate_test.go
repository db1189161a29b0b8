package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/memory"
)

// A board is a gate whose stands a test sets.
type board struct {
	changed chan struct{}

	mu     sync.Mutex
	stands []bridge.Stand
	ready  []bridge.Stand // as told last
}

func newBoard(shards int, s bridge.Stand) *board {
	b := &board{changed: make(chan struct{}, 1), stands: make([]bridge.Stand, shards), ready: make([]bridge.Stand, shards)}
	for i := range b.stands {
		b.stands[i] = s
	}
	return b
}

func (b *board) gate() *bridge.Gate {
	return &bridge.Gate{Shards: len(b.stands), Stand: b.stand, Changed: b.changed, Ready: b.told}
}

// stand answers as a lease does: what decides ends with its time.
func (b *board) stand(shard int) bridge.Stand {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stands[shard]
	if s.Role == bridge.RoleDecider && !s.Until.IsZero() && !time.Now().Before(s.Until) {
		s.Role = bridge.RoleWarm
	}
	return s
}

func (b *board) told(shard int, s bridge.Stand) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready[shard] = s
}

func (b *board) lastTold(shard int) bridge.Stand {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready[shard]
}

// set gives all shards a stand.
func (b *board) set(s bridge.Stand) {
	for i := range b.stands {
		b.put(i, s)
	}
}

func (b *board) put(shard int, s bridge.Stand) {
	b.mu.Lock()
	b.stands[shard] = s
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// Stands of tests.
var (
	decides = bridge.Stand{Role: bridge.RoleDecider, Term: 1, Decider: "me"}
	warm    = bridge.Stand{Role: bridge.RoleWarm, Term: 1, Decider: "other"}
	away    = bridge.Stand{Role: bridge.RoleAway, Term: 1, Decider: "other"}
)

// shared is a target in which each replica publishes for itself.
type publishing struct {
	session

	mu        sync.Mutex
	retracted []registry.Group
}

func (p *publishing) Retract(_ context.Context, g registry.Group) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retracted = append(p.retracted, g)
	return nil
}

// gated returns a story behind a gate whose shards all have one stand.
func gated(t *testing.T, shards int, s bridge.Stand, guard bridge.Guard) (*story, *board) {
	t.Helper()
	st, b := newStory(t).bridge("b", guard), newBoard(shards, s)
	st.opts.Gate = b.gate()
	return st, b
}

// turn makes a replica's part in a shard begin anew, before it is told.
func (b *board) turn(shard int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stands[shard].Turn++
}

// become gives a replica another stand, before it is told.
func (b *board) become(shard int, s bridge.Stand) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stands[shard] = s
}

func TestGate(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"F04 who decides anew, after another did, writes nothing before it has read anew, however early a change comes": func(t *testing.T) {
			s, b := gated(t, 1, decides, speed)
			s.starts().has(service("a", "10.0.0.1:80")).in(time.Second).holds("a 10.0.0.1:80")
			b.turn(0)
			s.target.Set(mine("a", "10.0.0.2:80")) // by who decided meanwhile
			s.has(service("a", "10.0.0.1:80", "10.0.0.3:80")).in(time.Minute).holds("a 10.0.0.1:80", "a 10.0.0.2:80")
			again := decides
			again.Turn = 1
			b.put(0, again)
			s.in(time.Second).holds("a 10.0.0.1:80", "a 10.0.0.3:80")
			if reads, writes := s.when(memory.OpRead, "a"), s.when(memory.OpWrite, "a"); reads[len(reads)-1] < time.Minute || writes[len(writes)-1] < time.Minute {
				t.Errorf("read at %v, written at %v", reads, writes)
			}
		},
		"A46 who kept warm and decides now writes nothing before it was told, however early a change comes": func(t *testing.T) {
			s, b := gated(t, 1, warm, speed)
			s.holding(mine("a", "10.0.0.1:80")).starts().has(service("a", "10.0.0.1:80")).in(time.Second)
			b.become(0, decides)
			s.has(service("a", "10.0.0.2:80")).in(time.Minute).holds("a 10.0.0.1:80")
			b.put(0, decides)
			s.in(time.Second).holds("a 10.0.0.2:80")
			if reads, writes := s.when(memory.OpRead, "a"), s.when(memory.OpWrite, "a"); reads[len(reads)-1] < time.Minute || writes[0] < reads[len(reads)-1] {
				t.Errorf("read at %v, written at %v", reads, writes)
			}
		},
		"A46 a warm replica reads and does not write": func(t *testing.T) {
			s, _ := gated(t, 4, warm, speed)
			s.holding(mine("a", "10.0.0.1:80"), mine("left", "10.0.0.7:80")).starts()
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.3:80")).in(time.Hour)
			s.holds("a 10.0.0.1:80", "left 10.0.0.7:80")
			s.reason("a", bridge.ReasonStandby, "decided by other").reason("b", bridge.ReasonStandby, "decided by other")
			if s.writes() != 0 || len(s.when(memory.OpRead, "a")) == 0 {
				t.Errorf("%+v", s.target.Counts())
			}
			s.noHold()
		},
		"what the decider writes is no complaint of a warm replica": func(t *testing.T) {
			s, _ := gated(t, 4, warm, speed)
			events := listens(s)
			s.holding(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.2:80")).starts().has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Minute)
			s.table().Put(service("a", "10.0.0.3:80"))
			s.in(time.Second)
			s.target.Set(mine("a", "10.0.0.3:80"))
			s.target.Drop(group("a"), "10.0.0.1:80")
			s.in(time.Hour)
			if len(*events) != 0 || len(s.when(memory.OpRead, "a")) < 2 {
				t.Errorf("it read %d times, and told of %+v", len(s.when(memory.OpRead, "a")), *events)
			}
		},
		"a replica that is away neither reads nor writes": func(t *testing.T) {
			s, _ := gated(t, 4, away, speed)
			s.holding(mine("a", "10.0.0.1:80")).starts()
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80"), service("b", "10.0.0.3:80")).in(time.Hour)
			if c := s.target.Counts(); c.Writes != 0 || c.Reads != 0 {
				t.Errorf("%+v", c)
			}
			s.reason("a", bridge.ReasonStandby, "decided by other")
		},
		"A46 what is taken over is read once more before it is written": func(t *testing.T) {
			s, b := gated(t, 4, warm, speed)
			s.starts().has(service("a", "10.0.0.1:80")).in(time.Second)
			before := len(s.when(memory.OpRead, "a"))
			s.target.Set(mine("a", "10.0.0.1:80")) // by the decider
			b.set(bridge.Stand{Role: bridge.RoleDecider, Term: 2, Turn: 1, Decider: "me"})
			s.in(time.Second)
			if got := len(s.when(memory.OpRead, "a")); got != before+1 || s.writes() != 0 {
				t.Errorf("%d reads, %d writes", got-before, s.writes())
			}
			s.reason("a", bridge.ReasonSynced, "")
		},
		"A46 a take-over withdraws nothing, and leftovers settle anew": func(t *testing.T) {
			s, b := gated(t, 4, warm, timed())
			s.holding(mine("a", "10.0.0.1:80"), mine("left", "10.0.0.7:80")).starts()
			s.has(service("a", "10.0.0.1:80")).in(time.Hour)
			b.set(bridge.Stand{Role: bridge.RoleDecider, Term: 2, Turn: 1, Decider: "me"})
			s.in(59 * time.Second).holdsN(2)
			s.in(2 * time.Second).holds("a 10.0.0.1:80")
		},
		"A46 what the source took back before the take-over goes as the guard says": func(t *testing.T) {
			s, b := gated(t, 4, warm, bridge.DefaultGuard())
			s.holding(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.2:80")).starts()
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Minute)
			s.table().Put(service("a", "10.0.0.1:80"))
			s.in(time.Minute).holdsN(2)
			b.set(bridge.Stand{Role: bridge.RoleDecider, Term: 2, Turn: 1, Decider: "me"})
			s.in(time.Second).holds("a 10.0.0.1:80")
		},
		"A46 a lost shard is not written any more, another one is": func(t *testing.T) {
			s, b := gated(t, 8, decides, speed)
			s.starts().has(service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80")).in(time.Second)
			if bridge.Shard(group("a"), 8) == bridge.Shard(group("b"), 8) {
				t.Fatal("choose names of different shards")
			}
			b.put(bridge.Shard(group("a"), 8), bridge.Stand{Role: bridge.RoleWarm, Term: 2, Turn: 1, Decider: "other"})
			s.in(0).has(service("a", "10.0.0.9:80"), service("b", "10.0.0.8:80")).in(time.Hour)
			s.holds("a 10.0.0.1:80", "b 10.0.0.8:80").reason("a", bridge.ReasonStandby, "other").reason("b", bridge.ReasonSynced, "")
		},
		"F47 nothing is written after the time of a lease, whatever nobody said": func(t *testing.T) {
			s, _ := gated(t, 4, bridge.Stand{Role: bridge.RoleDecider, Term: 1, Decider: "me", Until: time.Now().Add(10 * time.Second)}, speed)
			s.starts().has(service("a", "10.0.0.1:80")).in(11 * time.Second)
			s.has(service("a", "10.0.0.1:80", "10.0.0.2:80")).in(time.Hour)
			s.holds("a 10.0.0.1:80").reason("a", bridge.ReasonStandby, "")
		},
		"F47 a call under way ends with the time of the lease": func(t *testing.T) {
			until := time.Now().Add(10 * time.Second)
			s, _ := gated(t, 4, bridge.Stand{Role: bridge.RoleDecider, Term: 1, Until: until}, speed)
			var ended time.Time
			s.make()
			s.starts(hanging{session{s.target}, func() { ended = time.Now() }})
			s.has(service("a", "10.0.0.1:80")).in(time.Minute)
			if !ended.Equal(until) {
				t.Errorf("it ended %v after the start, want %v", ended.Sub(s.begin), until.Sub(s.begin))
			}
		},
		"F04 a fenced write is no conflict: it is told of, and not repeated in haste": func(t *testing.T) {
			s, _ := gated(t, 1, decides, speed)
			s.starts().fail(func(op memory.Op, _ registry.Group) error {
				if op == memory.OpWrite {
					return fmt.Errorf("shard 0: %w", registry.ErrFenced)
				}
				return nil
			})
			s.has(service("a", "10.0.0.1:80")).in(time.Minute)
			s.holds().reason("a", bridge.ReasonRetrying, "another replica")
			if n := len(s.when(memory.OpWrite, "a")); n > 8 {
				t.Errorf("%d attempts", n)
			}
		},
		"ready is told when everything of a shard was read, or written, for each term": func(t *testing.T) {
			s, b := gated(t, 2, warm, speed)
			s.starts().in(time.Minute)
			if got := b.lastTold(0); got != (bridge.Stand{}) {
				t.Errorf("ready %+v before the source was complete", got)
			}
			s.has(fleet(10, 1)...).in(time.Second)
			if b.lastTold(0) != warm || b.lastTold(1) != warm {
				t.Errorf("ready %+v and %+v", b.lastTold(0), b.lastTold(1))
			}
			s.fail(func(op memory.Op, _ registry.Group) error {
				if op == memory.OpWrite {
					return errDown
				}
				return nil
			})
			b.set(decides)
			s.in(time.Minute)
			if b.lastTold(0) == decides {
				t.Error("ready although nothing could be written")
			}
			s.fail(nil)
			s.in(time.Minute)
			if b.lastTold(0) != decides || b.lastTold(1) != decides {
				t.Errorf("ready %+v and %+v", b.lastTold(0), b.lastTold(1))
			}
			s.holdsN(10)
		},
		"a shard without any group is ready too": func(t *testing.T) {
			s, b := gated(t, 2, decides, speed)
			s.starts().has().in(time.Second)
			if b.lastTold(0) != decides || b.lastTold(1) != decides {
				t.Errorf("ready %+v and %+v", b.lastTold(0), b.lastTold(1))
			}
		},
		"in a shared target the warm one publishes too, and takes its part back when it is away": func(t *testing.T) {
			s, b := gated(t, 4, warm, speed)
			s.make()
			target := &publishing{session: session{s.target}}
			s.starts(target)
			s.has(service("a", "10.0.0.1:80")).in(time.Second).holds("a 10.0.0.1:80")
			b.set(away)
			s.in(time.Second)
			if len(target.retracted) != 1 || target.retracted[0] != group("a") {
				t.Errorf("taken back: %v", target.retracted)
			}
			s.has(service("a", "10.0.0.2:80")).in(time.Hour).holds("a 10.0.0.1:80")
			b.set(decides)
			s.in(time.Second).holds("a 10.0.0.2:80")
			if len(target.retracted) != 1 {
				t.Errorf("taken back: %v", target.retracted)
			}
		},
		"A46 what vanishes in the shards of others counts for the share that may go": func(t *testing.T) {
			s, b := gated(t, 2, decides, bridge.DefaultGuard())
			b.put(1, away)
			all := fleet(40, 1)
			s.starts().has(all...).in(time.Minute)
			ours := len(s.target.Entries())
			if ours < 12 || ours > 28 {
				t.Fatalf("%d of 40 groups are in one shard of two", ours)
			}
			s.table().Apply(nil, names(all[:20])) // half of all, of which a part is ours
			s.in(time.Minute).holdsN(ours)
			if h := s.hold(); len(h.Entries) == 0 {
				t.Errorf("%+v", h)
			}
		},
		"A46 F53 what flaps in the shards of others counts as often as it is gone": func(t *testing.T) {
			s, b := gated(t, 2, decides, bridge.DefaultGuard())
			b.put(1, away)
			all := fleet(40, 1)
			s.starts().has(all...).in(time.Minute)
			theirs := slices.IndexFunc(all, func(sv *registry.Service) bool { return bridge.Shard(group(string(sv.Name)), 2) == 1 })
			mine := slices.IndexFunc(all, func(sv *registry.Service) bool { return bridge.Shard(group(string(sv.Name)), 2) == 0 })
			for range 60 {
				s.table().Apply(nil, names(all[theirs:theirs+1]))
				s.in(2 * time.Second)
				s.table().Put(all[theirs])
				s.in(2 * time.Second)
			}
			before := len(s.target.Entries())
			s.table().Apply(nil, names(all[mine:mine+1]))
			s.in(time.Minute).noHold().holdsN(before - 1)
		},
		"what is taken over while a reading is under way is read again": func(t *testing.T) {
			s, b := gated(t, 1, warm, speed)
			s.hooks.Delay = time.Second
			s.starts().has(service("a", "10.0.0.1:80")).in(1500 * time.Millisecond)
			s.target.Set(mine("a", "10.0.0.1:80"), mine("a", "10.0.0.5:80"))
			b.set(decides)
			s.in(20 * time.Second).holds("a 10.0.0.1:80")
		},
	})
}

// TestShardsAreEven shows that groups are spread over the shards.
func TestShardsAreEven(t *testing.T) {
	const groups, shards = 16_000, 16
	counts := make([]int, shards)
	for i := range groups {
		g := registry.Group{Kind: "dubbo-interface", Namespace: "/dubbo", Name: fmt.Sprintf("com.example.team%d.Service%dFacade", i%40, i)}
		counts[bridge.Shard(g, shards)]++
	}
	for shard, n := range counts {
		if n < groups/shards*8/10 || n > groups/shards*12/10 {
			t.Errorf("shard %d has %d of %d groups", shard, n, groups)
		}
	}
	if bridge.Shard(registry.Group{Name: "x"}, 1) != 0 || bridge.Shard(registry.Group{Name: "x"}, 0) != 0 {
		t.Error("one shard is not all there is")
	}
}

// hanging is a target whose writes last until they are given up.
type hanging struct {
	session
	ended func()
}

func (h hanging) Write(ctx context.Context, _ registry.Change) error {
	<-ctx.Done()
	h.ended()
	return errors.Join(errDown, ctx.Err())
}

func names(services []*registry.Service) []registry.Name {
	out := make([]registry.Name, 0, len(services))
	for _, s := range services {
		out = append(out, s.Name)
	}
	return out
}
