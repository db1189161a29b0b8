package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

var errAway = errors.New("away")

// Records are texts by kind and name.
type Records map[string]map[string]string

// Store stores a text or, where it is empty, removes it.
func (r Records) Store(kind, name, text string) {
	if r[kind] == nil {
		r[kind] = make(map[string]string)
	}
	r[kind][name] = text
	if text == "" {
		delete(r[kind], name)
	}
}

// A recordingTarget is a target that keeps records.
type recordingTarget struct {
	*memory.Target
	records Records
}

func (k *recordingTarget) Capabilities() registry.Capabilities {
	c := k.Target.Capabilities()
	c.Records = k
	return c
}

func (k *recordingTarget) Records(_ context.Context, kind string) (map[string]string, error) {
	return maps.Clone(k.records[kind]), nil
}

func (k *recordingTarget) Record(_ context.Context, kind string, texts map[string]string) error {
	for name, text := range texts {
		k.records.Store(kind, name, text)
	}
	return nil
}

// A world is a source, a target and an engine between them, all by one seed. Calls
// end in any order, late, without effect, or without an answer; the process ends and
// begins again at any step. The rules are checked for the entries of one bridge, and for status.
// In every eighth world another bridge claims in a few groups that services share.
type world struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time
	target  *recordingTarget
	driver  *driver
	calls   []call // under way
	loop    *Loop
	table   *registry.Table
	bridges int
	readers []*registry.Reader // one for each bridge
	next    time.Time          // when the engine wants another turn
	turns   int

	source  map[registry.Name][]string   // what the source has
	seen    map[registry.Name][]string   // of that what the engine received
	blind   map[registry.Name]bool       // services of which it received that they are unknown
	known   bool                         // it was notified of everything, and that it is fresh
	fresh   bool                         // the same of the source
	unread  map[registry.Group]bool      // groups that it listed and has not read; nil: it has not listed
	denied  map[string]bool              // by an operator, and not claimed since
	said    []answer                     // answers to denials that the operator has not received
	free    map[string]bool              // approved, and not claimed since
	fell    map[registry.Group]time.Time // when services lost their last endpoint without approval
	log     strings.Builder
	reasons map[Reason]bool // that status had
}

// An answer says whether a denial of keys is recorded.
type answer struct {
	recorded <-chan error
	keys     []guard.Key
}

const worldServices, worldWorkers = 10, 3

// The bridges, each with groups of its kind.
const own, shared = "own", "shared"

func worldGuard() Guard {
	g := DefaultGuard()
	g.Confirm = 0 // deletions are within the budget or approved
	return g
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), now: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), table: registry.NewTable(),
		target: &recordingTarget{memory.New(memory.Options{Owner: "me"}), make(Records)},
		source: make(map[registry.Name][]string), denied: make(map[string]bool), free: make(map[string]bool), blind: make(map[registry.Name]bool),
		fell: make(map[registry.Group]time.Time), reasons: make(map[Reason]bool),
	}
	bridges := []Bridge{
		{Name: own, Table: w.table, Guard: worldGuard(), Project: func(s *registry.Service) ([]registry.Entry, error) {
			return entries(s, registry.Group{Kind: own, Name: string(s.Name)}), nil
		}},
		{Name: shared, Table: w.table, Guard: DefaultGuard(), Project: func(s *registry.Service) ([]registry.Entry, error) {
			n := s.Name[1] % 4
			return entries(s, registry.Group{Kind: shared, Name: fmt.Sprint("g", n), Exclusive: n == 0}), nil
		}},
	}
	if w.bridges = 1; seed%8 == 0 {
		w.bridges = 2
	}
	l, err := New(w.target, bridges[:w.bridges], Options{
		Owner: "me", Workers: worldWorkers, Debounce: 100 * time.Millisecond, Refresh: 5 * time.Minute,
		Author:  func(e registry.Entry) string { return e.Group.Kind },
		OnEvent: func(e Event) { fmt.Fprintf(&w.log, "event %s %s %s\n", e.Kind, e.Subject, e.What) },
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.loop = l
	for i := range worldServices {
		w.source[name(i)] = addresses(w.r.IntN(4), w.r.IntN(4)+1)
	}
	w.restart()
	w.replace()
	return w
}

func entries(s *registry.Service, g registry.Group) (all []registry.Entry) {
	for _, e := range s.Endpoints {
		all = append(all, registry.Entry{Group: g, Key: e.Address(), Value: "v"})
	}
	return all
}

func name(i int) registry.Name { return registry.Name(fmt.Sprint("s", i)) }

func addresses(from, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.0.0.%d", from+i+1))
	}
	return all
}

func serviceOf(n registry.Name, hosts []string) *registry.Service {
	s := &registry.Service{Name: n}
	for _, h := range hosts {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: h, Port: 80})
	}
	return s
}

// restart ends the process. Some of the calls in flight take effect.
func (w *world) restart() {
	for _, c := range w.calls {
		if w.r.IntN(2) == 0 {
			w.driver.makeCall(w.t.Context(), c)
		}
	}
	w.dies()
}

// dies ends the process and begins another. The calls in flight have no effect.
func (w *world) dies() {
	w.log.WriteString("restart\n")
	for _, a := range w.said { // a denial may be lost until somebody received that it is recorded
		select {
		case err := <-a.recorded:
			if err != nil && !errors.Is(err, errReplaced) {
				w.t.Fatal(err)
			}
		default:
			for _, k := range a.keys {
				delete(w.denied, key(k.Service, k.Key))
			}
		}
	}
	w.said, w.calls, w.driver = nil, nil, newDriver(w.loop, false)
	for _, r := range w.readers {
		r.Close()
	}
	w.readers = nil
	for range w.bridges {
		w.readers = append(w.readers, w.table.Reader())
	}
	w.seen, w.known, w.unread = nil, false, nil
	w.blind = make(map[registry.Name]bool)
}

// replace makes the source report everything.
func (w *world) replace() {
	w.fresh = true
	w.table.Replace(func(yield func(*registry.Service) bool) {
		for _, n := range slices.Sorted(maps.Keys(w.source)) {
			if !yield(serviceOf(n, w.source[n])) {
				return
			}
		}
	})
}

// turn applies an event, and then checks the decisions of the engine.
func (w *world) turn(happens func()) {
	w.driver.engine.Begin(w.now, Leadership{})
	happens()
	s := w.driver.engine.Step(w.now)
	w.next = s.nextAt
	for _, c := range s.calls {
		w.issued(c)
		w.calls = append(w.calls, c)
	}
	if len(s.calls) > 0 {
		fmt.Fprintf(&w.log, "at %s\n", w.now.Format(time.RFC3339Nano))
	}
	if w.turns++; w.turns%16 == 0 {
		w.agrees()
	}
}

// pass lets time pass, with a turn whenever the engine requests one.
func (w *world) pass(d time.Duration) {
	spins := 0
	for end := w.now.Add(d); w.now.Before(end); w.turn(func() {}) {
		at := end
		if !w.next.IsZero() && w.next.Before(end) {
			at = w.next
		}
		if spins++; at.After(w.now) {
			spins = 0
		}
		if w.now = at; spins > 10 {
			w.t.Fatalf("the engine wants turn after turn\n%s", w.tail())
		}
	}
}

func key(group registry.Group, k string) string { return group.Name + " " + k }

// issued checks a call against those in flight and against what the engine received.
func (w *world) issued(c call) {
	working := 1
	for _, other := range w.calls {
		if other.itemName() == c.itemName() {
			w.t.Fatalf("two calls about %s are under way\n%s", c.itemName(), w.tail())
		}
		if other.op != opRecords {
			working++
		}
	}
	if c.op != opRecords && working > worldWorkers {
		w.t.Fatalf("%d calls are under way, want up to %d\n%s", working, worldWorkers, w.tail())
	}
	fmt.Fprintf(&w.log, "call %s %s", c.op, c.itemName())
	for _, p := range c.change.Put {
		fmt.Fprintf(&w.log, " +%s", p.New.Key)
		if p.Old != nil && p.Old.Owner != "me" {
			w.t.Fatalf("%s is replaced, and it is another's\n%s", key(p.Old.Group, p.Old.Key), w.tail())
		}
	}
	for _, h := range c.change.Delete {
		fmt.Fprintf(&w.log, " -%s", h.Key)
		host, _, _ := strings.Cut(h.Key, ":")
		n := registry.Name(h.Group.Name)
		switch {
		case h.Owner != "me":
			w.t.Fatalf("%s is deleted, and it is another's\n%s", key(h.Group, h.Key), w.tail())
		case w.unread == nil || len(w.unread) > 0:
			w.t.Fatalf("%s is deleted before all was read that is there\n%s", key(h.Group, h.Key), w.tail())
		case h.Group.Kind != own: // of the other bridge
		case !w.known || w.blind[n]:
			w.t.Fatalf("%s is deleted, and the source cannot report\n%s", key(h.Group, h.Key), w.tail())
		case slices.Contains(w.seen[n], host):
			w.t.Fatalf("%s is deleted, and it is claimed\n%s", key(h.Group, h.Key), w.tail())
		case w.denied[key(h.Group, h.Key)]:
			w.t.Fatalf("%s is deleted, and an operator denied it\n%s", key(h.Group, h.Key), w.tail())
		}
	}
	w.log.WriteByte('\n')
	w.empties(c)
}

func (c call) itemName() string {
	if c.item == nil {
		return "records"
	}
	return c.item.group.Name
}

// empties checks how many services lose their last endpoint within the window, by
// withdrawals and reads that no operator approved.
func (w *world) empties(c call) {
	if len(c.change.Delete) == 0 || len(c.change.Want) > 0 || c.change.Group.Kind != own {
		return
	}
	left, all := 0, make(map[string]bool)
	for _, e := range w.target.Entries() {
		all[e.Group.Name] = true
		if e.Group == c.change.Group && !slices.ContainsFunc(c.change.Delete, func(h registry.Stored) bool { return h.Key == e.Key }) {
			left++
		}
	}
	if left > 0 || !slices.ContainsFunc(c.change.Delete, func(h registry.Stored) bool { return !w.free[key(h.Group, h.Key)] }) {
		return
	}
	w.fell[c.change.Group] = w.now
	maps.DeleteFunc(w.fell, func(_ registry.Group, at time.Time) bool { return w.now.Sub(at) > time.Hour })
	if n := len(w.fell); float64(n) > max(1, 0.3*worldServices) {
		w.t.Fatalf("%d services lost their last endpoint within an hour, without approval\n%s", n, w.tail())
	}
}

func (w *world) tail() string {
	s := w.log.String()
	return s[max(0, len(s)-3000):]
}

// deliver gives the engine the current content of the table.
func (w *world) deliver() {
	w.turn(func() {
		if w.driver.engine.waitsForList() {
			return
		}
		w.seen, w.known = maps.Clone(w.source), w.fresh
		w.blind = make(map[registry.Name]bool)
		for i, r := range w.readers {
			d := r.Drain()
			for n := range d.Unknown {
				w.blind[registry.Name(n)] = true
			}
			w.driver.engine.ApplyDelta(i, d, w.now)
		}
		for n, hosts := range w.seen {
			for _, h := range hosts {
				delete(w.denied, string(n)+" "+h+":80")
				delete(w.free, string(n)+" "+h+":80")
			}
		}
	})
}

// ends ends one of the calls in flight.
func (w *world) ends(fails bool) {
	if len(w.calls) == 0 {
		return
	}
	i := w.r.IntN(len(w.calls))
	c := w.calls[i]
	w.calls = slices.Delete(w.calls, i, i+1)
	o := outcome{call: c, err: errAway}
	switch kind := w.r.IntN(12); {
	case fails && kind == 0: // without effect
	case fails && kind == 1: // without an answer
		w.driver.makeCall(w.t.Context(), c)
	case fails && kind < 4 && c.op != opRecords:
		o.err = []error{registry.ErrRefused, registry.ErrConflict}[kind-2]
	default:
		o = w.driver.makeCall(w.t.Context(), c)
	}
	switch {
	case c.op == opList && o.err == nil && w.unread == nil:
		w.unread = make(map[registry.Group]bool)
		for _, g := range o.groups {
			w.unread[g] = true
		}
	case c.op == opRead: // one that cannot be read keeps nothing else
		delete(w.unread, c.item.group)
	}
	fmt.Fprintf(&w.log, "ends %s %s %v\n", c.op, c.itemName(), o.err)
	w.turn(func() { w.driver.callDone(o, w.now) })
}

// decides makes an operator decide about a hold.
func (w *world) decides(approves bool) { //nolint:revive // a decision, not a mode
	w.turn(func() {
		for _, b := range w.driver.engine.guards.scopes {
			for _, h := range b.holds() {
				for _, k := range h.keys {
					w.denied[key(k.Service, k.Key)], w.free[key(k.Service, k.Key)] = !approves, approves
				}
				fmt.Fprintf(&w.log, "decide %s %v %v\n", h.ID, approves, h.keys)
				recorded, err := w.driver.engine.guards.decide(h.ID, decision{Approved: approves, Who: "ann"}, w.now)
				if err != nil {
					w.t.Fatal(err)
				}
				if !approves {
					w.said = append(w.said, answer{recorded, h.keys})
				}
			}
		}
	})
}

func (w *world) step() {
	n := name(w.r.IntN(worldServices))
	switch w.r.IntN(21) {
	case 0, 1:
		w.source[n] = addresses(w.r.IntN(4), w.r.IntN(5))
		w.table.Put(serviceOf(n, w.source[n]))
	case 2:
		delete(w.source, n)
		w.table.Delete(n)
	case 3: // the source forgets some, and reports the others again
		for range w.r.IntN(worldServices) {
			delete(w.source, name(w.r.IntN(worldServices)))
		}
		if w.r.IntN(2) == 0 {
			w.table.Dialed()
		}
		w.replace()
	case 4:
		for i := range worldServices {
			w.source[name(i)] = addresses(w.r.IntN(2), w.r.IntN(4)+1)
		}
		w.replace()
	case 5:
		w.fresh = false
		w.table.Stale(errAway)
	case 6:
		w.table.Unknown(string(n), []error{errAway, nil, nil}[w.r.IntN(3)])
	case 7:
		w.restart()
	case 8:
		w.decides(w.r.IntN(2) == 0)
	case 9:
		e := registry.Entry{Group: registry.Group{Kind: own, Name: string(n)}, Key: "10.9.9.9:80", Value: "x"}
		w.target.Set(registry.Stored{Entry: e, Owner: "other", Live: true})
	case 10: // the process pauses
		w.now = w.now.Add(time.Duration(1+w.r.IntN(300)) * time.Second)
		w.turn(func() {})
	case 11, 12:
		w.pass(time.Duration(1+w.r.IntN(300)) * time.Second)
	case 13, 14, 15:
		w.deliver()
	case 16:
		w.target.Expire()
		w.turn(func() { w.driver.engine.LoseSession(w.now) })
	default:
		w.ends(true)
	}
}

// answered lets time pass in steps, after each of which all calls end well.
func (w *world) answered(d, step time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.pass(step) {
		for n := 0; len(w.calls) > 0; n++ {
			if w.ends(false); n > 1000 {
				w.t.Fatalf("calls follow each other without an end\n%s", w.tail())
			}
		}
	}
}

// diesAtDeletions withdraws one service after the other until one is held. Each deletion is
// the last call of its process, and records that were to be stored with it are lost. The next
// process must still know how much was deleted within the hour, which empties checks.
func (w *world) diesAtDeletions() {
	for i := range worldServices {
		delete(w.source, name(i))
		w.table.Delete(name(i))
		w.deliver()
		if !w.diesAtDeletion() {
			return
		}
	}
}

// diesAtDeletion ends calls until one deletes, and then the process; false if none does.
func (w *world) diesAtDeletion() bool {
	for range 40 {
		if at := slices.IndexFunc(w.calls, func(c call) bool { return len(c.change.Delete) > 0 }); at >= 0 {
			w.driver.makeCall(w.t.Context(), w.calls[at])
			w.dies()
			w.deliver()
			return true
		}
		if w.ends(false); len(w.calls) == 0 {
			w.pass(10 * time.Second)
		}
	}
	return false
}

// cannotTell makes the source unable to report a service, which it then no longer shows. No
// entry of the service may be deleted, which issued checks.
func (w *world) cannotTell() {
	n := name(w.r.IntN(worldServices))
	w.table.Unknown(string(n), errAway)
	w.table.Delete(n)
	w.deliver()
	w.answered(2*time.Minute, 10*time.Second)
	w.table.Unknown(string(n), nil)
	w.replace()
	w.deliver()
}

// rollsWhileAway replaces the endpoints of every service by as many others while the process
// is down. That causes no hold, and the replaced ones are deleted as soon as their wait is
// over, not at a refresh.
func (w *world) rollsWhileAway() {
	w.answered(worldGuard().Window+time.Minute, 5*time.Minute)
	for n, hosts := range w.source {
		w.source[n] = addresses(100, len(hosts))
	}
	w.dies()
	w.replace()
	w.deliver()
	w.answered(worldGuard().Settle+10*time.Second, 10*time.Second)
	w.storesWhatIsClaimed("soon after a replacement")
}

// comesToRest makes the source report everything, the target answer and an operator approve,
// until nothing is left to do.
func (w *world) comesToRest() {
	for i := range worldServices {
		w.table.Unknown(string(name(i)), nil)
	}
	w.replace()
	w.deliver()
	for range 12 {
		w.answered(80*time.Second, 10*time.Second)
		w.decides(true)
	}
	w.storesWhatIsClaimed("in the end")
}

// storesWhatIsClaimed checks that the target stores the reported endpoints, and nothing else.
func (w *world) storesWhatIsClaimed(when string) {
	var want []string
	for _, n := range slices.Sorted(maps.Keys(w.source)) {
		for _, h := range w.source[n] {
			want = append(want, string(n)+" "+h+":80")
		}
	}
	var got []string
	for _, e := range w.target.Entries() {
		if e.Value == "v" && e.Group.Kind == own {
			got = append(got, key(e.Group, e.Key))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s the target holds %v, want %v\n%s", when, got, want, w.tail())
	}
}

// agrees compares the status cache, which applied changes, with a fresh one.
func (w *world) agrees() {
	e := w.driver.engine
	e.statusCache.update(w.now)
	got := e.statusCache.status()
	fresh := newStatusCache(e)
	fresh.lastRead, fresh.lastWrite, fresh.lastError = e.statusCache.lastRead, e.statusCache.lastWrite, e.statusCache.lastError
	for _, it := range e.state.agenda.items {
		it.markDirty()
	}
	for _, p := range e.state.pipelines {
		p.reasons, p.unknowns = make(map[Reason]int), make(map[string]string)
		for n := range p.services {
			p.markDirty(n)
		}
		for scope := range p.certainty.Unknown {
			p.markDirty(registry.Name(scope))
		}
	}
	fresh.update(w.now)
	want := fresh.status()
	if got.OldestDue, want.OldestDue = 0, 0; !reflect.DeepEqual(got, want) {
		w.t.Fatalf("status = %+v\nwant %+v\n%s", got, want, w.tail())
	}
	for _, sv := range got.Services {
		w.reasons[sv.Reason] = true
	}
}

// run plays events, and returns a log of the calls.
func (w *world) run() string {
	for range 60 {
		w.step()
	}
	w.comesToRest()
	w.cannotTell()
	w.rollsWhileAway()
	w.diesAtDeletions()
	return w.log.String()
}

// TestEngine_Schedules: the same events at the same times give the same calls, to the byte,
// and no call breaks a rule.
func TestEngine_Schedules(t *testing.T) {
	t.Parallel()
	schedules := 10_000
	if testing.Short() {
		schedules = 40
	}
	reasons := make(map[Reason]bool)
	for seed := range uint64(schedules) { //nolint:gosec // it is small
		w := newWorld(t, seed)
		log := w.run()
		if seed%10 == 0 && newWorld(t, seed).run() != log {
			t.Fatalf("seed %d: two runs differ", seed)
		}
		maps.Copy(reasons, w.reasons)
	}
	if len(reasons) < 8 {
		t.Errorf("reasons = %v, want more", slices.Sorted(maps.Keys(reasons)))
	}
}
