package lease

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A scene is one state of a search: replicas, the record that they share, and
// the fence in front of a target. The electors are real; the fence is a model of
// what registry/zookeeper does in three requests: a node holds a term and its
// holder, is only ever raised, and every transaction checks the version it had
// when its sender saw its own term there.
type scene struct {
	rules   rules
	data    []byte
	record  record // that the data is
	text    key    // of the record
	version int
	fence   fenceNode
	members []*actor
	writes  []guarantees.Event // that were accepted
	path    []string           // the events that led here
}

const (
	sceneTTL  = 15 * time.Second
	sceneStep = sceneTTL / 3 // how long time passes at once
)

// rules are what a search holds of the code under it; each says what a defect
// does that the search has to find.
type rules struct {
	valid      time.Duration // added to how long a lease may be used
	noTerms    bool          // the fence is not compared: whoever comes later raises it
	noVersions bool          // transactions do not check the fence
	keeps      bool          // nobody is taken for dead
}

type fenceNode struct {
	term    int64
	holder  string
	version int
}

// An actor is one replica: an elector on a clock of its own, with a loop that is
// ready for its role at its next turn.
type actor struct {
	*Elector
	scene  *scene
	clock  time.Duration
	number int // of processes in this place before
	state  running
	away   bool // from its target
	behind bool // its clock stood still since it renewed
	slow   bool // its clock loses a quarter
	raised fenceNode
	sent   *sentWrite
}

type running string

const (
	runs      running = ""
	paused    running = "paused"    // its clock goes on
	suspended running = "suspended" // its clock stands still
)

// sentWrite is a transaction under way to the target.
type sentWrite struct {
	who     string
	term    int64
	version int // of the fence that it checks
}

func newScene(t *testing.T, r rules) *scene {
	t.Helper()
	s := &scene{rules: r}
	for i := range 3 {
		a := &actor{scene: s, slow: i == 0}
		a.start(t, string(rune('a'+i)))
		s.members = append(s.members, a)
	}
	return s
}

// start makes the actor a process that nobody knows yet.
func (a *actor) start(t testing.TB, name string) {
	t.Helper()
	e := New(Options{Store: a.scene, Target: "zk", Identity: name, TTL: sceneTTL, Reaches: a.reaches})
	a.Elector, a.raised, e.now = e, fenceNode{}, a.time
}

func (a *actor) time() time.Time { return time.Unix(1e9, 0).Add(a.clock) }
func (a *actor) reaches() bool   { return !a.away }
func (a *actor) leads() bool     { return a.Leadership().Role == bridge.RoleLeader }

// current returns the version of the record.
func (s *scene) current() string {
	if s.version == 0 {
		return ""
	}
	return strconv.Itoa(s.version)
}

// Load implements Store.
func (s *scene) Load(context.Context) ([]byte, string, error) { return s.data, s.current(), nil }

// Save implements Store.
func (s *scene) Save(_ context.Context, data []byte, version string) error {
	if version != s.current() {
		return registry.ErrConflict
	}
	return s.put(data)
}

func (s *scene) put(data []byte) (err error) {
	s.record, err = parse(data, time.Unix(1e9, 0))
	s.data, s.version = data, s.version+1
	s.text = recordKey(s.record, s.record)
	return err
}

// clone returns a scene that shares nothing with this one that either changes.
func (s *scene) clone() *scene {
	c := &scene{
		rules: s.rules, data: s.data, record: s.record, text: s.text, version: s.version, fence: s.fence,
		writes: slices.Clone(s.writes), path: slices.Clone(s.path),
	}
	for _, a := range s.members {
		n := *a
		n.scene = c
		n.Elector = a.copied(&n)
		c.members = append(c.members, &n)
	}
	return c
}

// copied returns the elector of an actor as that of another. Records are never
// changed in place.
func (a *actor) copied(to *actor) *Elector {
	e := a.Elector
	n := &Elector{
		opts: e.opts, now: to.time, changed: make(chan struct{}, 1), left: make(chan struct{}),
		view: e.view, shown: e.shown, lost: e.lost,
	}
	n.view.seen = maps.Clone(e.view.seen)
	n.opts.Store, n.opts.Reaches = to.scene, to.reaches
	return n
}

// takesTurn lets one that runs get ready for its role, and take its turn.
func (a *actor) takesTurn() {
	if a.state != runs {
		return
	}
	v := &a.view
	v.done = a.Leadership()
	before := v.renewed
	if a.scene.rules.keeps {
		for name := range v.seen {
			v.seen[name] = a.time()
		}
	}
	_ = a.turn(context.Background())
	if v.renewed != before {
		a.behind = false
		if !v.renewed.IsZero() {
			v.renewed = v.renewed.Add(a.scene.rules.valid)
		}
	}
}

// passes lets time pass, and whoever runs take a turn then.
func (s *scene) passes() {
	for _, a := range s.members {
		switch {
		case a.state == suspended:
			a.behind = true
		case a.slow:
			a.clock += sceneStep * 3 / 4
		default:
			a.clock += sceneStep
		}
	}
	for _, a := range s.members {
		a.takesTurn()
	}
}

// sends begins to write, as Target.fence does.
func (a *actor) sends() {
	term, name, node := a.Leadership().Term, a.opts.Identity, &a.scene.fence
	if got := a.raised; got.term != term || got.holder != name {
		switch {
		case node.holder == name && node.term == term:
		case node.term >= term && !a.scene.rules.noTerms:
			return
		default:
			*node = fenceNode{term, name, node.version + 1}
		}
		a.raised = *node
	}
	a.sent = &sentWrite{name, term, a.raised.version}
}

// arrives brings what was sent to the target.
func (a *actor) arrives() {
	w := a.sent
	a.sent = nil
	if a.scene.fence.version != w.version && !a.scene.rules.noVersions {
		if a.raised.version == w.version {
			a.raised = fenceNode{}
		}
		return
	}
	a.scene.writes = append(a.scene.writes, guarantees.Event{Kind: guarantees.Wrote, Group: "g", Who: w.who, Term: w.term})
}

// An event is one thing that may happen next.
type event struct {
	name string
	does func(*testing.T, *scene)
}

// events returns all that may happen in a scene.
func (s *scene) events() []event {
	all := []event{{"time", func(_ *testing.T, s *scene) { s.passes() }}}
	for n, a := range s.members {
		on := func(what string, does func(*testing.T, *actor)) {
			all = append(all, event{a.opts.Identity + " " + what, func(t *testing.T, s *scene) { does(t, s.members[n]) }})
		}
		if a.state == runs {
			on("turns", func(_ *testing.T, a *actor) { a.takesTurn() })
			on("is paused", func(_ *testing.T, a *actor) { a.state = paused })
			on("is suspended", func(_ *testing.T, a *actor) { a.state = suspended })
		} else {
			on("goes on", func(_ *testing.T, a *actor) { a.state = runs })
		}
		if a.number == 0 && a.state == runs {
			on("crashes", func(t *testing.T, a *actor) {
				a.number, a.state, a.behind = 1, paused, false // whether it comes back is another event
				a.start(t, a.opts.Identity+"'")
			})
		}
		on("loses or regains its target", func(_ *testing.T, a *actor) { a.away = !a.away })
		if a.sent != nil {
			on("has its write arrive", func(_ *testing.T, a *actor) { a.arrives() })
		} else if a.state == runs && !a.away && a.leads() {
			on("writes", func(_ *testing.T, a *actor) { a.sends() })
		}
	}
	return all
}

// wrong returns what must not be in a scene, empty where nothing is.
func (s *scene) wrong() string {
	var who []string
	for _, a := range s.members {
		if !a.behind && a.state != suspended && a.leads() {
			who = append(who, a.opts.Identity)
		}
	}
	if len(who) > 1 {
		return fmt.Sprintf("%v lead at once", who)
	}
	for _, v := range guarantees.Check("owner", s.writes) {
		if v.Guarantee == guarantees.OneWriter {
			return v.String()
		}
	}
	return ""
}

// stuck returns what does not get on once everything is well again: there has to
// be one leader whose writes are accepted.
func (s *scene) stuck() string {
	c := s.clone()
	for _, a := range c.members {
		a.state, a.away = runs, false
	}
	for range 4 * int(sceneTTL/sceneStep) {
		c.passes()
	}
	accepted := 0
	for _, a := range c.members {
		if !a.leads() {
			continue
		}
		before := len(c.writes)
		for range 2 { // the first may find that its fence was raised
			if a.sent == nil {
				a.sends()
			}
			if a.sent != nil {
				a.arrives()
			}
		}
		if len(c.writes) > before {
			accepted++
		}
	}
	if accepted != 1 {
		return fmt.Sprintf("in the end %d replicas write", accepted)
	}
	return ""
}

// key returns what all that may follow depends on: two scenes with one key
// have the same future.
func (s *scene) key() [sha256.Size]byte {
	k := make(key, 0, 1024)
	k = append(k, s.text...)
	k.add(s.fence.holder, s.fence.term)
	if n := len(s.writes); n > 0 {
		k.add(s.writes[n-1].Who, s.writes[n-1].Term)
	}
	for _, a := range s.members {
		a.key(&k)
	}
	return sha256.Sum256(k)
}

func (a *actor) key(k *key) {
	k.add(a.opts.Identity)
	k.add(string(a.state))
	v := &a.view
	k.flags(a.away, a.behind, v.unsure)
	since := func(at time.Time) int64 { return int64(max(at.Sub(a.time()), -sceneTTL)) }
	k.add("", since(v.readAt), since(v.renewed), int64(v.unready.Sub(a.time())), int64(v.patience))
	for _, name := range slices.Sorted(maps.Keys(v.seen)) {
		k.add(name, since(v.seen[name]))
		k.flags(v.record.Members[name].Beat == a.scene.record.Members[name].Beat)
	}
	*k = append(*k, recordKey(v.record, a.scene.record)...)
	now := a.scene.fence.version
	k.add(string(v.done.Role), v.done.Term, a.raised.term)
	k.flags(a.raised.version == now)
	if w := a.sent; w != nil {
		k.add(w.who, w.term)
		k.flags(w.version == now)
	}
}

// recordKey tells a record apart from others, given the one that holds now.
func recordKey(r, now record) key {
	k := make(key, 0, 256)
	k.add(r.Leader, r.Term)
	for _, name := range slices.Sorted(maps.Keys(r.Members)) {
		m := r.Members[name]
		k.add(name, m.Ready)
		k.flags(m.Beat == now.Members[name].Beat, m.Leaving)
	}
	return k
}

type key []byte

func (k *key) add(text string, numbers ...int64) {
	*k = append(append(*k, text...), 0)
	for _, n := range numbers {
		*k = binary.AppendVarint(*k, n)
	}
}

func (k *key) flags(all ...bool) {
	for _, f := range all {
		*k = strconv.AppendBool(*k, f)
	}
}

// search visits every order of events up to a depth, each state once, and
// returns the first in which something is wrong, and how many it saw.
func search(t *testing.T, from *scene, depth int) (found string, states int) {
	t.Helper()
	known := map[[sha256.Size]byte]bool{from.key(): true}
	level := []*scene{from}
	for range depth {
		var next []*scene
		for _, s := range level {
			for _, e := range s.events() {
				c := s.clone()
				e.does(t, c)
				c.path = append(c.path, e.name)
				if wrong := c.wrong(); wrong != "" {
					return strings.Join(c.path, ", ") + ": " + wrong, len(known)
				}
				if k := c.key(); !known[k] {
					known[k] = true
					next = append(next, c)
				}
			}
		}
		level = next
	}
	for i, s := range level {
		if i%29 != 0 { // each takes a hundred times as long as an event
			continue
		}
		if stuck := s.stuck(); stuck != "" {
			return strings.Join(s.path, ", ") + ": " + stuck, len(known)
		}
	}
	return "", len(known)
}

const suspendedOne = "a leader's machine was suspended, and another has written"

// beginnings are the scenes that searches start from.
func beginnings() map[string]func(*scene) {
	settled := func(s *scene) {
		for range 6 {
			s.passes()
		}
	}
	return map[string]func(*scene){
		"nobody was there": func(*scene) {},
		"all have settled": settled,
		"a leader is about to be taken for dead": func(s *scene) {
			settled(s)
			a := s.leader()
			a.sends()
			a.state = paused
			s.passes()
			s.passes()
		},
		suspendedOne: func(s *scene) {
			settled(s)
			first := s.leader()
			first.sends()
			first.state = suspended
			for range 4 {
				s.passes()
			}
			for _, a := range s.members {
				if a != first && a.leads() {
					a.sends()
					a.arrives()
				}
			}
		},
		"a leader has been without its target for long": func(s *scene) {
			settled(s)
			s.leader().away = true
			for range 23 {
				s.passes()
			}
		},
	}
}

func (s *scene) leader() *actor {
	return s.members[max(0, slices.IndexFunc(s.members, (*actor).leads))]
}

// TestEveryOrder visits every order of what may happen to three replicas and
// finds no two leaders at one moment, no write accepted out of the order of
// terms, and no state that does not get well. The gate looks less deep.
func TestEveryOrder(t *testing.T) {
	t.Parallel()
	for name, begin := range beginnings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, rules{})
			begin(s)
			depth := 3
			if !testing.Short() && (name == "all have settled" || name == suspendedOne) {
				depth = 4
			}
			found, states := search(t, s, depth)
			if found != "" {
				t.Error(found)
			}
			t.Log(states, "states")
		})
	}
}

// TestSearchFindsDefects shows that a search finds what it is for.
func TestSearchFindsDefects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		begin string
		depth int
		rules rules
		want  string
	}{
		"a lease may be used for the whole ttl":  {"all have settled", 4, rules{valid: sceneTTL / 3}, "lead at once"},
		"a fence is not compared":                {suspendedOne, 4, rules{noTerms: true}, "OneWriter"},
		"a transaction does not check the fence": {"a leader is about to be taken for dead", 4, rules{noVersions: true}, "OneWriter"},
		"nobody is ever taken for dead":          {"all have settled", 3, rules{keeps: true}, "0 replicas write"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && tt.depth > 3 {
				t.Skip("takes long: make test-all runs it")
			}
			s := newScene(t, tt.rules)
			beginnings()[tt.begin](s)
			if found, states := search(t, s, tt.depth); !strings.Contains(found, tt.want) {
				t.Errorf("%q in %d states, want %q", found, states, tt.want)
			} else {
				t.Log(found)
			}
		})
	}
}
