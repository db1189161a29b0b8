package guard_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
)

// The two tables of testdata/tables.md are what these tests saw with the settings of
// the defaults. UPDATE_GOLDEN=1 rewrites them.

const page = "testdata/tables.md"

// A mesh is a source of a bench.
type mesh struct {
	*bench

	first   map[string][]string             // what the source showed at first, by service
	shown   map[string][]string             // the endpoints that it shows
	seen    map[string]map[string]bool      // the endpoints that it showed over the present connection
	gone    map[string]map[string]time.Time // since when it does not show a stored endpoint
	changed map[string]bool                 // services to be observed

	size             int // endpoints at first
	least, mostHeld  int
	confirmed        bool
	firstHeld, ended time.Time
	dead             time.Duration // the longest that something stayed that was gone
}

func newMesh(t *testing.T, sizes map[string]int) *mesh {
	t.Helper()
	m := &mesh{
		bench: newBench(t, defaults()), shown: make(map[string][]string), seen: make(map[string]map[string]bool),
		gone: make(map[string]map[string]time.Time), changed: make(map[string]bool),
	}
	for name, n := range sizes {
		m.scale(name, n)
	}
	m.first = maps.Clone(m.shown)
	m.round()
	m.size = m.count()
	m.least = m.size
	return m
}

// show makes the source show exactly these endpoints of a service.
func (m *mesh) show(name string, endpoints []string) {
	m.shown[name], m.changed[name] = endpoints, true
	if m.seen[name] == nil {
		m.seen[name], m.gone[name] = make(map[string]bool), make(map[string]time.Time)
	}
	for _, id := range endpoints {
		m.seen[name][id] = true
	}
}

// scale makes a service have n endpoints: the newest are removed first, added ones are new.
func (m *mesh) scale(name string, n int) {
	all := slices.Clone(m.shown[name][:min(n, len(m.shown[name]))])
	for len(all) < n {
		all = append(all, fmt.Sprintf("%d@%d", len(all), m.now.Unix()))
	}
	m.show(name, all)
}

// only makes the source show n of the first endpoints, service by service or evenly from all.
func (m *mesh) only(n int, evenly bool) { //nolint:revive // of a test
	shown := make(map[string]int)
	for n > 0 {
		for _, name := range slices.Sorted(maps.Keys(m.first)) {
			more := min(n, len(m.first[name])-shown[name])
			if evenly {
				more = min(more, 1)
			}
			shown[name] += more
			n -= more
		}
	}
	for name, all := range m.first {
		m.show(name, all[:shown[name]])
	}
}

// connect reads the source over a new connection.
func (m *mesh) connect() {
	m.now = m.now.Add(time.Second)
	m.connection++
	for name := range m.seen {
		clear(m.seen[name])
		m.show(name, m.shown[name])
	}
}

// restartsWith restarts the source, which then shows n of its first endpoints.
func (m *mesh) restartsWith(n int, evenly bool) {
	clear(m.shown)
	m.connect()
	m.only(n, evenly)
}

// count returns how many endpoints of the first services are stored.
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
		m.connect()
	}
}

// observe makes the guard observe the endpoints of a service that the source shows, and the
// stored ones that it showed before.
func (m *mesh) observe(name string) {
	var all []endpoint
	for _, id := range m.shown[name] {
		delete(m.gone[name], id)
		all = append(all, endpoint{Key: id, Claimed: true})
	}
	for _, e := range m.stored[name] {
		if slices.Contains(m.shown[name], e.Key) {
			continue
		}
		if e = (endpoint{Key: e.Key, Report: guard.Missing}); m.seen[name][e.Key] {
			e.Report = guard.Withdrawn
		}
		if m.gone[name][e.Key].IsZero() {
			m.gone[name][e.Key] = m.now
		}
		all = append(all, e)
	}
	m.stored[name] = all
	m.guard.Observe(m.now, named(name), stored(all))
}

// delete forgets since when deleted endpoints are gone.
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

// pass lets time pass, and judges at intervals.
func (m *mesh) pass(d, step time.Duration) {
	for until := m.now.Add(d); m.now.Before(until); {
		m.now = m.now.Add(step)
		m.round()
	}
}

// A scenario is a sequence of events in a mesh.
type scenario struct {
	what string
	do   func(*mesh)
}

// away restarts a source, which shows so many tenths for a while.
func away(tenths int, d time.Duration, evenly bool) func(*mesh) {
	return func(m *mesh) {
		m.restartsWith(m.size*tenths/10, evenly)
		m.pass(d, 10*time.Second)
		m.only(m.size, false)
		m.pass(20*time.Minute, 30*time.Second)
	}
}

// turns makes a source show so many tenths and everything in turns.
func turns(tenths int) func(*mesh) {
	return func(m *mesh) {
		for range 15 {
			m.restartsWith(m.size*tenths/10, false)
			m.pass(70*time.Second, 10*time.Second)
			m.only(m.size, false)
			m.pass(70*time.Second, 10*time.Second)
		}
	}
}

// bleed makes a source lose 29 % of the remaining endpoints again and again.
func bleed(lose func(*mesh, int, bool), evenly bool) func(*mesh) {
	return func(m *mesh) {
		shown := m.size
		for range 6 {
			shown = int(math.Ceil(float64(shown) * 0.71))
			lose(m, shown, evenly)
			m.pass(5*time.Minute, 10*time.Second)
		}
		m.pass(30*time.Minute, 30*time.Second)
	}
}

func scenarios() []scenario {
	const minute = time.Minute
	return []scenario{
		{"restarts and shows nothing, for five minutes", away(0, 5*minute, false)},
		{"restarts and shows nothing, for an hour", away(0, 60*minute, false)},
		{"restarts and shows half, for five minutes", away(5, 5*minute, false)},
		{"restarts and shows half of each service, for five minutes", away(5, 5*minute, true)},
		{"restarts and shows a tenth, for five minutes", away(1, 5*minute, false)},
		{"restarts empty for half an hour, and comes back service by service in five minutes", func(m *mesh) {
			m.restartsWith(0, false)
			m.pass(30*minute, 20*time.Second)
			for i := range 10 {
				m.only(m.size*i/10, false)
				m.pass(30*time.Second, 10*time.Second)
			}
			m.only(m.size, false)
			m.pass(10*minute, 20*time.Second)
		}},
		{"shows half for good", func(m *mesh) {
			m.restartsWith(m.size/2, false)
			m.pass(20*minute, 10*time.Second)
		}},
		{"shows all and half in turns, each for 70 s", turns(5)},
		{"shows all and nine of ten in turns, each for 70 s", turns(9)},
		{"withdraws 29 % of what is left each five minutes, for half an hour, service by service", bleed((*mesh).only, false)},
		{"the same evenly from all services", bleed((*mesh).only, true)},
		{"no longer shows 29 % of what is left each five minutes, for half an hour, service by service", bleed((*mesh).restartsWith, false)},
		{"the same evenly from all services", bleed((*mesh).restartsWith, true)},
		{"is replaced by another of the same size", func(m *mesh) {
			m.restartsWith(0, false)
			for name, all := range m.first {
				m.scale("other-"+name, len(all))
			}
			m.pass(20*minute, 10*time.Second)
		}},
	}
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

func TestGuard_TableOfSources(t *testing.T) {
	lines := []string{"| a source | 1 endpoint | 2 | 5 | 10 | 100 | 10,000 |", "|---|---|---|---|---|---|---|"}
	for _, row := range scenarios() {
		cells := []string{row.what}
		for _, n := range []int{1, 2, 5, 10, 100, 10000} {
			if testing.Short() && n > 1000 {
				cells = append(cells, "…")
				continue
			}
			m := newMesh(t, services(n))
			row.do(m)
			cells = append(cells, m.cell())
		}
		lines = append(lines, "| "+strings.Join(cells, " | ")+" |")
	}
	section(t, "the table of sources", lines)
}

// cell says how much was kept, whether something was held, and what remained once the source had confirmed it.
func (m *mesh) cell() string {
	text := strconv.Itoa(m.least)
	if m.least == m.size {
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

// operate plays each word of a script: s0*=4 makes the services of such a name
// have four endpoints, big=35..2 one less each second, and 30s lets time pass.
func operate(script string) func(*mesh) {
	return func(m *mesh) {
		for word := range strings.FieldsSeq(script) {
			name, sizes, found := strings.Cut(word, "=")
			if !found {
				d, err := time.ParseDuration(word)
				if err != nil {
					m.t.Fatal(err)
				}
				m.pass(d, time.Second)
				continue
			}
			first, last, gradually := strings.Cut(sizes, "..")
			from, _ := strconv.Atoi(first)
			to, _ := strconv.Atoi(last)
			if !gradually {
				m.scaleAll(name, from)
				continue
			}
			for n := from; n >= to; n-- {
				m.scaleAll(name, n)
				m.pass(time.Second, time.Second)
			}
		}
	}
}

// scaleAll makes the services of such a name have n endpoints.
func (m *mesh) scaleAll(pattern string, n int) {
	for name := range m.shown {
		if like, _ := path.Match(pattern, name); like {
			m.scale(name, n)
		}
	}
}

// operations are on twenty services s00 to s19 of six endpoints, one of 36, and one of one.
func operations() []scenario {
	return []scenario{
		{"rolling restart of one service of 36, one by one in 18 s", func(m *mesh) {
			for i := range 36 {
				all := slices.Clone(m.shown["big"])
				all[i] = fmt.Sprint("new-", i)
				m.show("big", all)
				if i%2 == 1 {
					m.pass(time.Second, time.Second)
				}
			}
			m.pass(5*time.Minute, time.Second)
		}},
		{"rolling restart of all services, each old endpoint 5 s before its new one", func(m *mesh) {
			for range 6 {
				for name, all := range m.shown {
					if len(all) == 6 {
						m.show(name, all[1:])
					}
				}
				operate("5s s*=6 2s")(m)
			}
			m.pass(5*time.Minute, time.Second)
		}},
		{"restart of a service of one endpoint, away for 20 s", operate("one=0 20s one=1 5m")},
		{"scale up, 6 to 18, and back within a day", operate("s00=18 8h s00=6 10m")},
		{"scale down of one service, 36 to 2", operate("big=35..2 20m")},
		{"scale down of one service to nothing", operate("s00=5..0 20m")},
		{"scale down of all services to a half", operate("s*=5..3 20m")},
		{"scale down of all services to a third", operate("s*=5..2 20m")},
		{"the same at once", operate("s*=2 20m")},
		{"canary: one more endpoint, and away again", operate("s00=7 5m s00=6 5m")},
		{"a zone of three is drained, its endpoints come back elsewhere 30 s later", operate("s*=4 big=24 30s s*=6 big=36 5m")},
		{"a zone of three fails and stays away", operate("s*=4 big=24 20m")},
		{"everything is redeployed: all old endpoints go, new ones come 20 s later", operate("s*=0 20s s*=6 20m")},
		{"one of 22 services is removed", operate("s07=0 20m")},
		{"half of all services are removed", operate("s0*=0 s10=0 20m")},
	}
}

func TestGuard_TableOfOperations(t *testing.T) {
	lines := []string{"| what is done | held, at most | a dead address stays, at most |", "|---|---|---|"}
	for _, row := range operations() {
		sizes := map[string]int{"big": 36, "one": 1}
		for i := range 20 {
			sizes[fmt.Sprintf("s%02d", i)] = 6
		}
		m := newMesh(t, sizes)
		row.do(m)
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

// section compares the text between two markers of the page, or rewrites it.
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
			t.Errorf("%s says\n%s\nand what happened is\n%s\nmake golden rewrites it", page, was, is)
			return
		}
	}
}

// same compares two rows, but for cells that were left out.
func same(row, want string) bool {
	is, was := strings.Split(row, "|"), strings.Split(want, "|")
	return slices.EqualFunc(is, was, func(a, b string) bool { return a == b || strings.TrimSpace(a) == "…" })
}
