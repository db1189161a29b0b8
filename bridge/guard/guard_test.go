package guard_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/registry"
)

func defaults() guard.Options {
	return guard.Options{
		Share: 0.3, AtLeast: 10, Window: time.Hour, LastEndpoint: 30 * time.Second, Settle: time.Minute, Confirm: 10 * time.Minute,
	}
}

func named(service string) registry.Group { return registry.Group{Name: service} }

// An endpoint is stored by the target.
type endpoint struct {
	Key     string
	Claimed bool
	New     bool         // of one that is claimed
	Report  guard.Report // of another
}

// stored returns endpoints as a guard observes them.
func stored(all []endpoint) (s guard.Counts) {
	s.Unclaimed = make(map[string]guard.Report)
	for _, e := range all {
		switch {
		case !e.Claimed:
			s.Unclaimed[e.Key] = e.Report
		case e.New:
			s.New++
			fallthrough
		default:
			s.Claimed++
		}
	}
	return s
}

// A bench drives one guard by hand.
type bench struct {
	t          *testing.T
	guard      *guard.Guard
	now        time.Time
	connection int
	stored     map[string][]endpoint
	round      guard.Round
	saved      map[registry.Group]guard.Record
	deleted    int // in the last round
}

func newBench(t *testing.T, o guard.Options) *bench {
	t.Helper()
	return &bench{
		t: t, guard: guard.New(o, nil), now: time.Unix(1e9, 0).UTC(), connection: 1,
		stored: make(map[string][]endpoint), saved: make(map[registry.Group]guard.Record),
	}
}

// set makes services store endpoints, by a text such as s0-3=9c1w: each of the first
// four has nine claimed and one withdrawn.
func (b *bench) set(services, claims string) {
	b.t.Helper()
	var all []endpoint
	letters := map[byte]endpoint{'c': {Claimed: true}, 'w': {Report: guard.Withdrawn}, 'm': {Report: guard.Missing}, 'u': {Report: guard.Unknown}}
	for claims != "" {
		at := strings.IndexAny(claims, "cwmu")
		n, err := strconv.Atoi(claims[:max(at, 0)])
		if err != nil {
			b.t.Fatal(err)
		}
		for range n {
			e := letters[claims[at]]
			e.Key = strconv.Itoa(len(all))
			all = append(all, e)
		}
		claims = claims[at+1:]
	}
	name, last, many := strings.Cut(services, "-")
	if !many {
		b.stored[name] = all
		return
	}
	n, _ := strconv.Atoi(last)
	for i := range n + 1 {
		b.stored[fmt.Sprint(name[:1], i)] = slices.Clone(all)
	}
}

// run plays each line: the endpoints of services, a new connection, a restart, or a decision
// about a number of held ones. Then time passes, and the guard deletes and holds so many.
func (b *bench) run(script string) *bench {
	b.t.Helper()
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		for i, word := range words {
			number := func() int { n, _ := strconv.Atoi(words[i+1]); return n }
			switch word {
			case "connect":
				b.connection++
			case "restart":
				b.restart()
			case "approve":
				b.guard.Decide(b.now, guard.Free, b.held()[:number()])
			case "deny":
				b.guard.Decide(b.now, guard.Denied, b.held()[:number()])
			case "in":
				d, err := time.ParseDuration(words[i+1])
				if err != nil {
					b.t.Fatal(err)
				}
				b.in(d)
			case "deletes":
				b.is(strings.TrimSpace(line)+": deleted", b.deleted, number())
			case "holds":
				b.is(strings.TrimSpace(line)+": held", len(b.held()), number())
			default:
				if services, claims, found := strings.Cut(word, "="); found {
					b.set(services, claims)
				}
			}
		}
	}
	return b
}

func (b *bench) is(what string, got, want any) {
	b.t.Helper()
	if !reflect.DeepEqual(got, want) {
		b.t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// in lets time pass, calls Judge, stores the records and deletes the free endpoints.
func (b *bench) in(d time.Duration) {
	b.t.Helper()
	b.now = b.now.Add(d)
	b.observe()
	b.judge()
	b.observe()
}

func (b *bench) judge() {
	b.round = b.guard.Judge(b.now, b.connection)
	for _, r := range b.round.Changed {
		b.saved[r.Service] = r
	}
	b.deleted = 0
	for _, g := range b.round.Free {
		all := b.stored[g.Name]
		b.stored[g.Name] = slices.DeleteFunc(all, func(e endpoint) bool { return b.guard.Fate(g, e.Key) == guard.Free })
		b.deleted += len(all) - len(b.stored[g.Name])
	}
}

func (b *bench) observe() {
	for service, all := range b.stored {
		b.guard.Observe(b.now, named(service), stored(all))
	}
}

func (b *bench) held() []guard.Key {
	if h := b.guard.Hold(); h != nil {
		return h.Keys
	}
	return nil
}

// restart continues with a guard that knows only the records, as they are stored.
func (b *bench) restart() {
	b.t.Helper()
	b.guard = guard.New(b.guard.Options, reread(b.t, b.saved))
	b.connection = 1
	for _, all := range b.stored {
		for i := range all {
			if all[i].Report == guard.Withdrawn {
				all[i].Report = guard.Missing
			}
		}
	}
}

func reread(t *testing.T, saved map[registry.Group]guard.Record) (records []guard.Record) {
	t.Helper()
	for _, r := range saved {
		if r.Empty() {
			continue
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again guard.Record
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		records = append(records, again)
	}
	return records
}

// fallen is ten services of ten endpoints, four of which the source does not show
// after it was read again.
const fallen = `
	s0-9=10c in 0s
	connect s0-3=10m in 1s
	in 1m deletes 0 holds 40`

// newHeld is a service that holds five missing endpoints of six.
const newHeld = `
	a=6c in 0s
	connect a=1c5m in 1s
	in 1m deletes 0 holds 5`

func TestGuard_Scripts(t *testing.T) {
	for name, script := range map[string]string{
		"a hold ends once its endpoints come back": fallen + `
			s0-3=10c in 1s deletes 0 holds 0`,
		"approval of a part keeps the others held": fallen + `
			approve 20 in 1s deletes 20 holds 20
			in 1s deletes 0 holds 20`, // less than the share, and it stays held
		"most of a bridge requires an operator": `
			s0-9=2c in 0s
			s0-5=2w in 1m deletes 0 holds 12
			connect in 1h deletes 0 holds 12`,
		"the unknown goes once it is withdrawn": `
			s0=4c in 0s
			s0=3c1u in 1m deletes 0 holds 0
			s0=3c1w in 1s deletes 1 holds 0`,
		"one withdrawn service may go": `
			a=1c b=1c c=1c in 0s
			a=1w in 1s deletes 0 holds 0
			in 30s deletes 1 holds 0
			b=1w in 31s deletes 0 holds 1`,
		"not one that is missing": `
			a=1c b=1c in 0s
			connect a=1m in 1s
			in 1m deletes 0 holds 1`,
		"the other part of a hold counts in full": `
			s0-9=4c in 0s
			s0-7=1c3w in 1s deletes 0 holds 24
			approve 2 in 1s deletes 2 holds 22
			in 1s deletes 0 holds 22`, // the third is half of the remaining ones
		"a service that falls further": `
			s0-9=10c in 0s
			connect s0-9=4c6m in 1s
			in 1m deletes 0 holds 60
			in 8m
			connect s0=3c7m in 1s
			in 2m deletes 54 holds 7
			in 7m deletes 0 holds 7`,
		"a held service keeps its baseline": `
			a=40c b=10c in 0s
			a=20c20w in 1s deletes 20 holds 0
			a=10c10w in 30m deletes 0 holds 10
			in 2h deletes 0 holds 10`,
		"a few withdrawn endpoints may go": `
			a=11c in 0s
			a=1c10w in 1s deletes 10 holds 0`,
		"no budget before endpoints settle": `
			s0-9=2c in 0s
			connect in 0s
			s0=2m in 5s s1=2m in 5s s2=2m in 5s s3=2m in 5s s4=2m in 5s
			s5=2m in 5s s6=2m in 5s s7=2m in 5s s8=2m in 5s s9=2m in 5s
			in 10s
			in 5s deletes 0 holds 2
			in 5s deletes 0 holds 4
			in 40s deletes 0 holds 20`,
	} {
		t.Run(name, func(t *testing.T) { newBench(t, defaults()).run(script) })
	}
}

func TestGuard_Hold(t *testing.T) {
	b := newBench(t, defaults()).run(fallen)
	h := b.guard.Hold()
	b.is("hold", []any{h.Emptied, h.Services, h.Lost, h.Endpoints, h.OperatorOnly, h.Since}, []any{4, 10, 40, 100, false, b.now})
	b.in(4 * time.Minute)
	b.is("Reconnect after 4 minutes", b.round.Reconnect, false)
	b.in(time.Minute)
	b.is("Reconnect after 5 minutes", b.round.Reconnect, true)
	b.run(`
		in 20m deletes 0 holds 40
		connect in 1s deletes 0 holds 40
		in 1m deletes 40 holds 0`)
	b.is("released", []any{len(b.round.Released), b.round.Released[0].Service}, []any{4, named("s0")})
}

func TestGuard_Denied(t *testing.T) {
	b := newBench(t, defaults()).run(fallen + `
		deny 40 in 1s deletes 0 holds 0`)
	denied := b.now
	b.run(`
		restart in 1h
		connect in 1h
		connect in 1h deletes 0 holds 0
		s0=10c in 1s
		s0=9c1w in 1s deletes 1 holds 0`)
	b.is("denied since", b.guard.Denied().Since, denied)
	var keys []guard.Key
	for i := range 10 {
		keys = append(keys, guard.Key{Service: named("s1"), Key: strconv.Itoa(i)})
	}
	b.guard.Decide(b.now, guard.Free, keys)
	b.run("in 1s deletes 10 holds 0")
}

func TestGuard_Modes(t *testing.T) {
	o := defaults()
	o.Mode = guard.Warn
	b := newBench(t, o).run(strings.Replace(fallen, "deletes 0 holds 40", "deletes 40 holds 0", 1))
	b.is("warned of", len(b.round.Warned.Keys), 40)
	b.in(time.Second)
	b.is("warned twice", b.round.Warned != nil, false)
	o.Mode = guard.Off
	newBench(t, o).run(`
		a=1c in 0s
		a=1w in 1s deletes 1 holds 0`)
	b = newBench(t, defaults()).run(fallen)
	b.guard.Options.Mode = guard.Off
	b.run("in 1s deletes 40 holds 0")
}

func TestGuard_Records(t *testing.T) {
	b := newBench(t, defaults()).run("s0-99=10c in 0s")
	b.is("records before a loss", len(b.saved), 0)
	b.run("s0=9c1w in 1s")
	b.is("records and peaks", []int{len(b.saved), len(b.saved[named("s0")].Peaks), b.saved[named("s0")].Peaks[0].N}, []int{1, 1, 10})
	b.in(2 * time.Hour)
	b.is("empty after the window", b.saved[named("s0")].Empty(), true)
	b = newBench(t, defaults()).run("a=10c in 1s a=8c in 1s a=5c in 1s")
	for _, claims := range []string{"9c", "7c"} { // before the guard judges again
		b.set("a", claims)
		b.observe()
	}
	b.in(time.Second)
	if c := b.round.Changed; len(c) != 1 || len(c[0].Peaks) != 2 || c[0].Peaks[1].N != 9 {
		t.Errorf("Changed = %v after 10, 8, 5, 9 and 7 endpoints, want 10 and 9", c)
	}
}

func TestGuard_Replacements(t *testing.T) {
	another, third := endpoint{Key: "another", Claimed: true}, endpoint{Key: "third", Claimed: true}
	b := newBench(t, defaults()).run(newHeld)
	b.stored["a"] = append(b.stored["a"], another)
	b.run("in 1s deletes 0 holds 5") // it is unknown which it replaces
	b.stored["a"] = append(b.stored["a"], third)
	b.in(time.Second)
	b.stored["a"][7] = endpoint{Key: third.Key, Report: guard.Withdrawn}
	b.run("in 1s deletes 1 holds 5")
	b = newBench(t, defaults())
	b.stored["a"] = []endpoint{ // the orphans of an earlier process
		{Key: "old", Report: guard.Missing},
		{Key: "older", Report: guard.Missing},
		{Key: "new", Claimed: true, New: true},
		{Key: "newer", Claimed: true, New: true},
	}
	b.run(`
		other=2c in 0s
		in 1m deletes 2 holds 0`)
}

func TestGuard_EmptySource(t *testing.T) {
	b := newBench(t, defaults()).run(`
		s0-9=1c in 0s
		s0-8=1w in 1s holds 9
		deny 9 in 1s
		s9=1w in 1s
		in 1m deletes 0 holds 1
		in 10m`)
	b.is("operator only, reconnect", []bool{b.guard.Hold().OperatorOnly, b.round.Reconnect}, []bool{true, false})
}

func TestGuard_Restart(t *testing.T) {
	b := newBench(t, defaults()).run(`
		a=1c b=4c in 0s
		a=1w in 1s`)
	b.guard.Restart(b.now.Add(time.Hour)) // after a standstill
	b.run(`
		in 1h29s deletes 0 holds 0
		in 1s deletes 1 holds 0`)
}
