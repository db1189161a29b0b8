package guard_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The two tables of docs/guard.md are what these tests saw with the settings of
// the defaults. UPDATE_GOLDEN=1 writes them anew.

const page = "../../docs/guard.md"

// A mesh is a source beside a bench.
type mesh struct {
	*bench

	shown   map[string][]string             // by service
	seen    map[string]map[string]bool      // over the present connection
	gone    map[string]map[string]time.Time // since when the source does not show what is stored
	changed map[string]bool                 // services to be observed

	first            map[string]bool // services that were there at first
	least, mostHeld  int
	confirmed        bool
	firstHeld, ended time.Time
	dead             time.Duration // the longest that something stayed that was gone
}

func newMesh(t *testing.T, services map[string]int) *mesh {
	t.Helper()
	m := &mesh{
		bench: newBench(t, defaults()), shown: make(map[string][]string), seen: make(map[string]map[string]bool),
		gone: make(map[string]map[string]time.Time), changed: make(map[string]bool), first: make(map[string]bool),
	}
	for name, n := range services {
		m.first[name] = true
		m.scale(name, n)
	}
	m.round()
	m.least = m.count()
	return m
}

// show makes endpoints all that the source shows of a service.
func (m *mesh) show(name string, endpoints []string) {
	m.shown[name], m.changed[name] = endpoints, true
	if m.seen[name] == nil {
		m.seen[name], m.gone[name] = make(map[string]bool), make(map[string]time.Time)
	}
	for _, id := range endpoints {
		m.seen[name][id] = true
	}
}

// reconnect has the source be read over a new connection, which shows what it shows.
func (m *mesh) reconnect() {
	m.now = m.now.Add(time.Second)
	m.connection++
	for name := range m.seen {
		clear(m.seen[name])
		m.show(name, m.shown[name])
	}
}

func (m *mesh) count() (n int) {
	for name := range m.first {
		n += len(m.stored[name])
	}
	return n
}

func (m *mesh) round() {
	for name := range m.changed {
		m.observe(name)
	}
	clear(m.changed)
	m.judge()
	for _, g := range m.bench.round.Free {
		m.delete(g.Name)
	}
	if held := len(m.held()); held > 0 {
		m.mostHeld, m.ended = max(m.mostHeld, held), m.now
		if m.firstHeld.IsZero() {
			m.firstHeld = m.now
		}
	}
	for _, x := range m.bench.round.Released {
		m.confirmed = m.confirmed || strings.HasPrefix(x.Cause, "the source")
	}
	if !m.confirmed {
		m.least = min(m.least, m.count())
	}
	if m.bench.round.Reconnect {
		m.reconnect()
	}
}

// observe has the guard observe what the source shows of a service, and what is left
// of what it showed before.
func (m *mesh) observe(name string) {
	var all []endpoint
	for _, id := range m.shown[name] {
		delete(m.gone[name], id)
		all = append(all, endpoint{Key: id, Claim: claimed})
	}
	for _, e := range m.stored[name] {
		if slices.Contains(m.shown[name], e.Key) {
			continue
		}
		if e.Claim = missing; m.seen[name][e.Key] {
			e.Claim = withdrawn
		}
		if m.gone[name][e.Key].IsZero() {
			m.gone[name][e.Key] = m.now
		}
		all = append(all, e)
	}
	m.stored[name] = all
	m.guard.Observe(m.now, named(name), stored(all))
}

// delete has what was deleted be gone no more.
func (m *mesh) delete(name string) {
	for id, since := range m.gone[name] {
		if !slices.ContainsFunc(m.stored[name], func(e endpoint) bool { return e.Key == id }) {
			m.dead = max(m.dead, m.now.Sub(since))
			delete(m.gone[name], id)
			m.changed[name] = true
		}
	}
	m.observe(name)
}

// pass lets time pass, and looks every so often.
func (m *mesh) pass(d, step time.Duration) {
	for until := m.now.Add(d); m.now.Before(until); {
		m.now = m.now.Add(step)
		m.round()
	}
}

// only has the source show the first n of all endpoints, service by service, or evenly from all services.
func (m *mesh) only(all map[string]int, n int, evenly bool) { //nolint:revive // of a test
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	shown := make(map[string][]string)
	for i := 0; n > 0; i++ {
		for _, name := range names {
			take := min(n, all[name])
			if evenly {
				take = min(n, 1)
			}
			for range take {
				if len(shown[name]) < all[name] {
					shown[name] = append(shown[name], strconv.Itoa(len(shown[name])))
					n--
				}
			}
		}
	}
	for _, name := range names {
		m.show(name, shown[name])
	}
}

// restartWith has the source restart and show n of all.
func (m *mesh) restartWith(all map[string]int, n int, evenly bool) {
	for name := range m.shown {
		m.shown[name] = nil
	}
	m.reconnect()
	m.only(all, n, evenly)
}

// services returns services of so many endpoints in all.
func services(endpoints int) map[string]int {
	each := 2
	switch {
	case endpoints < 10:
		each = 1
	case endpoints == 10000:
		each = 20
	}
	all := make(map[string]int)
	for i := range endpoints / each {
		all[fmt.Sprintf("s%04d", i)] = each
	}
	return all
}

// A scenario is what a source does to n endpoints in all.
type scenario struct {
	what string
	do   func(m *mesh, all map[string]int, n int)
}

func away(part func(n int) int, d time.Duration, evenly bool) func(*mesh, map[string]int, int) {
	return func(m *mesh, all map[string]int, n int) {
		m.restartWith(all, part(n), evenly)
		m.pass(d, 10*time.Second)
		m.only(all, n, false)
		m.pass(20*time.Minute, 30*time.Second)
	}
}

func turns(part func(n int) int) func(*mesh, map[string]int, int) {
	return func(m *mesh, all map[string]int, n int) {
		for range 15 {
			m.restartWith(all, part(n), false)
			m.pass(70*time.Second, 10*time.Second)
			m.only(all, n, false)
			m.pass(70*time.Second, 10*time.Second)
		}
	}
}

func bleed(reconnects, evenly bool) func(*mesh, map[string]int, int) { //nolint:revive // of a test
	return func(m *mesh, all map[string]int, n int) {
		shown := n
		for range 6 {
			shown = int(math.Ceil(float64(shown) * 0.71))
			if reconnects {
				m.restartWith(all, shown, evenly)
			} else {
				m.only(all, shown, evenly)
			}
			m.pass(5*time.Minute, 10*time.Second)
		}
		m.pass(30*time.Minute, 30*time.Second)
	}
}

func none(int) int    { return 0 }
func half(n int) int  { return n / 2 }
func tenth(n int) int { return n / 10 }

func scenarios() []scenario {
	const minute = time.Minute
	return []scenario{
		{"restarts and shows nothing, for five minutes", away(none, 5*minute, false)},
		{"restarts and shows nothing, for an hour", away(none, 60*minute, false)},
		{"restarts and shows half, for five minutes", away(half, 5*minute, false)},
		{"restarts and shows half of each service, for five minutes", away(half, 5*minute, true)},
		{"restarts and shows a tenth, for five minutes", away(tenth, 5*minute, false)},
		{"restarts empty for half an hour, and comes back service by service in five minutes", func(m *mesh, all map[string]int, n int) {
			m.restartWith(all, 0, false)
			m.pass(30*minute, 20*time.Second)
			for i := range 10 {
				m.only(all, n*i/10, false)
				m.pass(30*time.Second, 10*time.Second)
			}
			m.only(all, n, false)
			m.pass(10*minute, 20*time.Second)
		}},
		{"shows half for good", func(m *mesh, all map[string]int, n int) {
			m.restartWith(all, n/2, false)
			m.pass(20*minute, 10*time.Second)
		}},
		{"shows all and half in turns, each for 70 s", turns(half)},
		{"shows all and nine of ten in turns, each for 70 s", turns(func(n int) int { return n * 9 / 10 })},
		{"withdraws 29 % of what is left each five minutes, for half an hour, service by service", bleed(false, false)},
		{"the same evenly from all services", bleed(false, true)},
		{"no longer shows 29 % of what is left each five minutes, for half an hour, service by service", bleed(true, false)},
		{"the same evenly from all services", bleed(true, true)},
		{"is replaced by another of the same size", func(m *mesh, all map[string]int, _ int) {
			m.restartWith(all, 0, false)
			for name, n := range all {
				m.scale("other-"+name, n)
			}
			m.pass(20*minute, 10*time.Second)
		}},
	}
}

func TestGuard_TableOfSources(t *testing.T) {
	sizes := []int{1, 2, 5, 10, 100, 10000}
	lines := []string{"| a source | 1 endpoint | 2 | 5 | 10 | 100 | 10,000 |", "|---|---|---|---|---|---|---|"}
	for _, row := range scenarios() {
		cells := []string{"", row.what}
		for _, n := range sizes {
			if testing.Short() && n > 1000 {
				cells = append(cells, "…")
				continue
			}
			all := services(n)
			m := newMesh(t, all)
			row.do(m, all, n)
			cells = append(cells, m.cell(n))
		}
		lines = append(lines, strings.TrimSpace(strings.Join(cells, " | ")+" |"))
	}
	section(t, "the table of sources", lines)
}

// cell says how much of n stayed, whether something was held, and what was left once the source had confirmed it.
func (m *mesh) cell(n int) string {
	text := strconv.Itoa(m.least)
	if m.least == n {
		text = "all"
	}
	if m.mostHeld > 0 {
		text += ", held"
	}
	if m.confirmed {
		text += fmt.Sprintf("; then %d", m.count())
	}
	return text
}

// scale makes a service have n endpoints: the newest go first, those that come are new.
func (m *mesh) scale(name string, n int) {
	all := slices.Clone(m.shown[name])
	all = all[:min(n, len(all))]
	for len(all) < n {
		id := strconv.Itoa(len(all))
		if m.least > 0 {
			id += fmt.Sprint("@", m.now.Unix())
		}
		all = append(all, id)
	}
	m.show(name, all)
}

// gradually scales services down, each by one a second.
func (m *mesh) gradually(names []string, n int) {
	for more := true; more; m.pass(time.Second, time.Second) {
		more = false
		for _, name := range names {
			if k := len(m.shown[name]); k > n {
				m.scale(name, k-1)
				more = true
			}
		}
	}
	m.pass(20*time.Minute, time.Second)
}

// replace has an endpoint be another from now on.
func (m *mesh) replace(name string, i int, id string) {
	all := slices.Clone(m.shown[name])
	all[i] = id
	m.show(name, all)
}

// sixes are the twenty services of six endpoints.
func sixes() (names []string) {
	for i := range 20 {
		names = append(names, fmt.Sprintf("s%02d", i))
	}
	return names
}

func operations() []scenario {
	const second, minute = time.Second, time.Minute
	each := func(m *mesh, do func(name string)) {
		for _, name := range sixes() {
			do(name)
		}
		m.pass(0, second)
	}
	do := func(f func(m *mesh)) func(*mesh, map[string]int, int) {
		return func(m *mesh, _ map[string]int, _ int) { f(m) }
	}
	return []scenario{
		{"rolling restart of one service of 36, one by one in 18 s", do(func(m *mesh) {
			for i := range 36 {
				m.replace("big", i, fmt.Sprint("new-", i))
				if i%2 == 1 {
					m.pass(second, second)
				}
			}
			m.pass(5*minute, second)
		})},
		{"rolling restart of all services, each old endpoint 5 s before its new one", do(func(m *mesh) {
			for i := range 6 {
				each(m, func(name string) { m.show(name, m.shown[name][1:]) })
				m.pass(5*second, second)
				each(m, func(name string) { m.show(name, append(slices.Clone(m.shown[name]), fmt.Sprint("new-", i))) })
				m.pass(2*second, second)
			}
			m.pass(5*minute, second)
		})},
		{"restart of a service of one endpoint, away for 20 s", do(func(m *mesh) {
			m.show("one", nil)
			m.pass(20*second, second)
			m.show("one", []string{"new"})
			m.pass(5*minute, second)
		})},
		{"scale up, 6 to 18, and back within a day", do(func(m *mesh) {
			m.scale("s00", 18)
			m.pass(8*time.Hour, minute)
			m.scale("s00", 6)
			m.pass(10*minute, second)
		})},
		{"scale down of one service, 36 to 2", do(func(m *mesh) { m.gradually([]string{"big"}, 2) })},
		{"scale down of one service to nothing", do(func(m *mesh) { m.gradually([]string{"s00"}, 0) })},
		{"scale down of all services to a half", do(func(m *mesh) { m.gradually(sixes(), 3) })},
		{"scale down of all services to a third", do(func(m *mesh) { m.gradually(sixes(), 2) })},
		{"the same at once", do(func(m *mesh) {
			each(m, func(name string) { m.scale(name, 2) })
			m.pass(20*minute, second)
		})},
		{"canary: one more endpoint, and away again", do(func(m *mesh) {
			m.scale("s00", 7)
			m.pass(5*minute, second)
			m.scale("s00", 6)
			m.pass(5*minute, second)
		})},
		{"a zone of three is drained, its endpoints come back elsewhere 30 s later", do(func(m *mesh) {
			each(m, func(name string) { m.scale(name, 4) })
			m.scale("big", 24)
			m.pass(30*second, second)
			each(m, func(name string) { m.scale(name, 6) })
			m.scale("big", 36)
			m.pass(5*minute, second)
		})},
		{"a zone of three fails and stays away", do(func(m *mesh) {
			each(m, func(name string) { m.scale(name, 4) })
			m.scale("big", 24)
			m.pass(20*minute, second)
		})},
		{"everything is redeployed: all old endpoints go, new ones come 20 s later", do(func(m *mesh) {
			each(m, func(name string) { m.show(name, nil) })
			m.pass(20*second, second)
			each(m, func(name string) { m.show(name, []string{"n0", "n1", "n2", "n3", "n4", "n5"}) })
			m.pass(20*minute, second)
		})},
		{"one of 22 services is removed", do(func(m *mesh) {
			m.show("s07", nil)
			m.pass(20*minute, second)
		})},
		{"half of all services are removed", do(func(m *mesh) {
			for _, name := range sixes()[:11] {
				m.show(name, nil)
			}
			m.pass(20*minute, second)
		})},
	}
}

func TestGuard_TableOfOperations(t *testing.T) {
	lines := []string{"| what is done | held, at most | a dead address stays, at most |", "|---|---|---|"}
	for _, row := range operations() {
		all := map[string]int{"big": 36, "one": 1}
		for _, name := range sixes() {
			all[name] = 6
		}
		m := newMesh(t, all)
		row.do(m, all, 157)
		held := "nothing"
		if m.mostHeld > 0 {
			held = fmt.Sprintf("%d endpoints, for %s", m.mostHeld, m.ended.Sub(m.firstHeld)+time.Second)
		}
		dead := m.dead.String()
		if m.dead < 2*time.Second {
			dead = "under 2 s"
		}
		lines = append(lines, fmt.Sprintf("| %s | %s | %s |", row.what, held, dead))
		for name, gone := range m.gone {
			if len(gone) > 0 {
				t.Errorf("%s: %d endpoints of %s stay for good", row.what, len(gone), name)
			}
		}
	}
	section(t, "the table of operations", lines)
}

// section compares what is between two markers of the page, or writes it anew.
func section(t *testing.T, name string, lines []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": make golden -->\n", "<!-- the end of "+name+" -->"
	before, rest, found := strings.Cut(string(text), begin)
	was, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no section %q", page, name)
	}
	is := strings.Join(lines, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" && !testing.Short() {
		if err := os.WriteFile(page, []byte(before+begin+is+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	wants := strings.Split(was, "\n")
	for i, line := range strings.Split(is, "\n") {
		if i >= len(wants) || !same(line, wants[i]) {
			t.Errorf("%s says\n%s\nand what happened is\n%s\nmake golden writes it anew", page, was, is)
			return
		}
	}
}

// same compares two rows, but for cells that were left out.
func same(row, want string) bool {
	is, was := strings.Split(row, "|"), strings.Split(want, "|")
	return slices.EqualFunc(is, was, func(a, b string) bool { return a == b || strings.TrimSpace(a) == "…" })
}
