package bridge_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The two tables in docs/reliability.md on what the guard of the defaults does
// are what these tests saw. UPDATE_GOLDEN=1 writes them anew; what must hold
// whatever they say is asserted beside.

const guardTables = "../docs/reliability.md"

// section compares what stands between two markers of the document, or writes
// it anew.
func section(t *testing.T, name string, lines []string) {
	t.Helper()
	text, err := os.ReadFile(guardTables)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": make golden -->\n", "<!-- the end of "+name+" -->"
	before, rest, found := strings.Cut(string(text), begin)
	was, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no section %q", guardTables, name)
	}
	is := strings.Join(lines, "\n") + "\n"
	if is == was {
		return
	}
	if os.Getenv("UPDATE_GOLDEN") == "" {
		t.Fatalf("%s says\n%s\nand what happened is\n%s\nmake golden writes it anew", guardTables, was, is)
	}
	if err := os.WriteFile(guardTables, []byte(before+begin+is+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A whole is what a source shows: services of so many endpoints.
type whole struct{ services, endpoints int }

func (m whole) entries() int               { return m.services * m.endpoints }
func (m whole) all() []*registry.Service   { return fleet(m.services, m.endpoints) }
func (m whole) other() []*registry.Service { return renamed(m.all(), "other") }

func renamed(services []*registry.Service, prefix string) []*registry.Service {
	for _, sv := range services {
		sv.Name = registry.Name(prefix) + sv.Name
	}
	return services
}

// part returns of each ten endpoints so many, as they come.
func (m whole) part(tenths int) []*registry.Service {
	out, n := m.all(), 0
	for _, sv := range out {
		var left []registry.Endpoint
		for _, e := range sv.Endpoints {
			if n++; n*tenths/10 > (n-1)*tenths/10 {
				left = append(left, e)
			}
		}
		sv.Endpoints = left
	}
	return slices.DeleteFunc(out, func(sv *registry.Service) bool { return len(sv.Endpoints) == 0 })
}

// A view is what the source shows, over which connections come and go.
type view struct {
	*story
	shown []*registry.Service
	least int // entries of those from before
	held  bool
}

// watches starts a bridge of the defaults into a mesh, long settled.
func watches(t *testing.T, m whole) *view {
	t.Helper()
	v := &view{story: newStory(t).bridge("b", bridge.DefaultGuard()), shown: m.all(), least: m.entries()}
	v.opts.Refresh = 24 * time.Hour
	v.bridges[0].Recheck = func() { // from the loop
		v.table().Dialed()
		v.table().Replace(slices.Values(v.shown))
	}
	v.starts().dials(v.shown...).in(10 * time.Minute).holdsN(m.entries())
	v.begin = time.Now()
	return v
}

// restarts has the source restart: ten seconds later it shows something else.
func (v *view) restarts(next []*registry.Service) {
	v.table().Stale(errLost)
	v.goes(10 * time.Second)
	v.shown = next
	v.dials(next...)
}

// turns has another view of the source last for 70 s.
func (v *view) turns(next []*registry.Service) {
	v.shown = next
	v.dials(next...)
	v.goes(70 * time.Second)
}

// goes lets time pass and looks each second.
func (v *view) goes(d time.Duration) {
	for range int(d / time.Second) {
		v.in(time.Second)
		c := v.target.Counts()
		v.least = min(v.least, c.Put-c.Deleted)
		v.held = v.held || strings.Contains(v.log.String(), "exceed what the guard permits")
	}
}

// says returns what became of n entries, by now and once what the source shows
// has lasted.
func (v *view) says(n int) string {
	out := strconv.Itoa(v.least)
	if v.least == n {
		out = "all"
	}
	if v.held {
		out += ", held"
	}
	left := 0
	for _, e := range v.in(15 * time.Minute).target.Entries() {
		if !strings.HasPrefix(e.Group.Name, "other") {
			left++
		}
	}
	if left < v.least {
		out += fmt.Sprintf("; then %d", left)
	}
	return out
}

// TestGuardTable_Sources is the table of what sources can do, by how much there
// is (V26, and the slow bleed).
func TestGuardTable_Sources(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-all runs it")
	}
	meshes := []whole{{1, 1}, {2, 1}, {5, 1}, {5, 2}, {50, 2}, {500, 20}}
	situations := []struct {
		what string
		do   func(v *view, m whole)
		keep float64 // the least part of the entries that must stay
	}{
		{"restarts and shows nothing, for five minutes", func(v *view, m whole) {
			v.restarts(nil)
			v.goes(5 * time.Minute)
			v.restarts(m.all())
		}, 1},
		{"restarts and shows nothing, for an hour", func(v *view, _ whole) {
			v.restarts(nil)
			v.in(time.Hour)
		}, 1},
		{"restarts and shows half, for five minutes", func(v *view, m whole) {
			v.restarts(m.part(5))
			v.goes(5 * time.Minute)
			v.restarts(m.all())
		}, 1},
		{"restarts and shows a tenth, for five minutes", func(v *view, m whole) {
			v.restarts(m.part(1))
			v.goes(5 * time.Minute)
			v.restarts(m.all())
		}, 1},
		{"shows half for good", func(v *view, m whole) { v.restarts(m.part(5)) }, 0},
		{"shows all and half in turns, each for 70 s", func(v *view, m whole) {
			for range 5 {
				v.turns(m.part(5))
				v.turns(m.all())
			}
			v.shown = m.all()
		}, 1},
		{"shows all and nine of ten in turns, each for 70 s", func(v *view, m whole) {
			v.turns(m.part(9)) // the first time it is believed
			v.turns(m.all())
			before := v.target.Counts()
			for range 5 {
				v.turns(m.part(9))
				v.turns(m.all())
			}
			if c := v.target.Counts(); c.Writes != before.Writes {
				v.t.Errorf("%d writes while two views took turns", c.Writes-before.Writes)
			}
		}, 0.8},
		{"withdraws 29 % of what is left each five minutes, for half an hour", func(v *view, m whole) {
			v.bleeds(m, func(next []*registry.Service) { v.table().Apply(next, missingIn(m.all(), next)) })
		}, 0.3},
		{"no longer shows 29 % of what is left each five minutes, for half an hour", func(v *view, m whole) {
			v.bleeds(m, func(next []*registry.Service) { v.has(next...) })
		}, 0.3},
		{"is replaced by another of the same size", func(v *view, m whole) { v.restarts(m.other()) }, 0},
	}
	lines := []string{"| a source | 1 entry | 2 | 5 | 10 | 100 | 10,000 |", "|---|---|---|---|---|---|---|"}
	for _, s := range situations {
		line := "| " + s.what
		for _, m := range meshes {
			t.Run(fmt.Sprint(s.what, " of ", m.entries()), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					v := watches(t, m)
					s.do(v, m)
					v.goes(4 * time.Minute)
					if float64(v.least) < s.keep*float64(m.entries()) {
						t.Errorf("%d of %d entries were left", v.least, m.entries())
					}
					line += " | " + v.says(m.entries())
				})
			})
		}
		lines = append(lines, line+" |")
	}
	section(t, "the table of sources", lines)
}

// bleeds has the source lose a part again and again.
func (v *view) bleeds(m whole, tell func([]*registry.Service)) {
	left := m.entries()
	for range 6 {
		left -= left * 29 / 100
		gone, next := m.entries()-left, m.all()
		for i := 0; gone > 0; i++ { // services one after the other
			n := min(gone, m.endpoints)
			next[i].Endpoints = next[i].Endpoints[n:]
			gone -= n
		}
		next = slices.DeleteFunc(next, func(sv *registry.Service) bool { return len(sv.Endpoints) == 0 })
		v.shown = next
		tell(next)
		v.goes(5 * time.Minute)
	}
	if m.entries() >= 100 && v.least < m.entries()*2/3 { // fewer stop losing earlier
		v.t.Errorf("%d of %d entries were left while it went on", v.least, m.entries())
	}
}

// missingIn returns which services are not among others any more.
func missingIn(all, left []*registry.Service) (gone []registry.Name) {
	for _, sv := range all {
		if !slices.ContainsFunc(left, func(l *registry.Service) bool { return l.Name == sv.Name }) {
			gone = append(gone, sv.Name)
		}
	}
	return gone
}

// An operation is what people do to services, told by a source without fault.
type operation struct {
	*story
	deadSince map[string]time.Time
	dead      time.Duration // the longest that an address stayed that the source had withdrawn
	held      int           // the most entries that were held at a time
	heldFor   time.Duration
}

// operates starts a bridge of the defaults into 20 services of 6 endpoints, one
// of 36 and one of one.
func operates(t *testing.T) *operation {
	t.Helper()
	o := &operation{story: newStory(t).bridge("b", bridge.DefaultGuard()), deadSince: make(map[string]time.Time)}
	all := fleet(20, 6)
	all = append(all, of("large", 0, 36), of("single", 0, 1))
	o.starts().dials(all...).in(2 * time.Hour)
	o.bridges[0].Recheck = nil
	return o
}

// of returns a service with the endpoints from one number to another.
func of(name string, from, to int) *registry.Service {
	addrs := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		addrs = append(addrs, fmt.Sprintf("10.9.%d.%d:80", i>>8, i&255))
	}
	return service(name, addrs...)
}

// goes lets time pass and looks each second for what is dead and what is held.
func (o *operation) goes(d time.Duration) {
	for range int(d / time.Second) {
		o.in(time.Second)
		live := make(map[string]bool)
		rows, _ := o.table().Snapshot()
		for name, sv := range rows {
			for _, e := range sv.Endpoints {
				live[string(name)+" "+e.Address()] = true
			}
		}
		dead := make(map[string]time.Time)
		for _, e := range o.target.Entries() {
			at := e.Group.Name + " " + e.Key
			if live[at] {
				continue
			}
			if dead[at] = o.deadSince[at]; dead[at].IsZero() {
				dead[at] = time.Now()
			}
			o.dead = max(o.dead, time.Since(dead[at]))
		}
		o.deadSince = dead
		held := 0
		for _, h := range o.status().Holds {
			held += len(h.Entries)
		}
		if o.held = max(o.held, held); held > 0 {
			o.heldFor += time.Second
		}
	}
}

// each changes every service of six.
func (o *operation) each(change func(i int) *registry.Service) {
	all := make([]*registry.Service, 0, 20)
	for i := range 20 {
		all = append(all, change(i))
	}
	o.table().Apply(all, nil)
}

func six(i, from, to int) *registry.Service {
	sv := service(fmt.Sprint("s", i))
	for j := from; j < to; j++ {
		sv.Endpoints = append(sv.Endpoints, service("", fmt.Sprintf("10.0.%d.%d:80", i, j+1)).Endpoints...)
	}
	return sv
}

// TestGuardTable_Operations is the table of what people do on purpose, under
// the defaults (V29).
func TestGuardTable_Operations(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-all runs it")
	}
	const never = -1
	operations := []struct {
		what string
		do   func(o *operation)
		held int           // the most entries that may be held; never: none
		dead time.Duration // the longest that a dead address may stay
	}{
		{"rolling restart of one service of 36, one by one in 18 s", func(o *operation) {
			for i := range 36 {
				o.table().Put(of("large", i+1, 37+i))
				o.in(500 * time.Millisecond)
			}
		}, never, 2 * time.Second},
		{"rolling restart of all services, each old endpoint 5 s before its new one", func(o *operation) {
			for i := range 6 {
				o.each(func(s int) *registry.Service { return six(s, i+1, 6+i) })
				o.goes(5 * time.Second)
				o.each(func(s int) *registry.Service { return six(s, i+1, 7+i) })
				o.goes(5 * time.Second)
			}
		}, never, 2 * time.Second},
		{"restart of a service of one endpoint, away for 20 s", func(o *operation) {
			o.table().Put(of("single", 0, 0))
			o.goes(20 * time.Second)
			o.table().Put(of("single", 1, 2))
		}, never, 21 * time.Second},
		{"scale up, 6 to 18, and back within a day", func(o *operation) {
			o.table().Put(six(0, 0, 18))
			o.goes(time.Minute)
			o.in(10 * time.Hour)
			o.table().Put(six(0, 0, 6))
		}, never, 2 * time.Second},
		{"scale down of one service, 36 to 2", func(o *operation) { o.table().Put(of("large", 0, 2)) }, never, 2 * time.Second},
		{"scale down of one service to nothing", func(o *operation) { o.table().Put(of("large", 0, 0)) }, never, 31 * time.Second},
		{"scale down of all services to a half", func(o *operation) {
			o.each(func(s int) *registry.Service { return six(s, 0, 3) })
		}, never, 2 * time.Second},
		{"scale down of all services to a third", func(o *operation) {
			o.each(func(s int) *registry.Service { return six(s, 0, 2) })
		}, 80, 11 * time.Minute},
		{"canary: one more endpoint, and away again", func(o *operation) {
			o.table().Put(six(0, 0, 7))
			o.goes(time.Minute)
			o.table().Put(six(0, 0, 6))
		}, never, 2 * time.Second},
		{"a zone of three is drained, its endpoints come back elsewhere 30 s later", func(o *operation) {
			o.each(func(s int) *registry.Service { return six(s, 2, 6) })
			o.goes(30 * time.Second)
			o.each(func(s int) *registry.Service { return six(s, 2, 8) })
		}, never, 2 * time.Second},
		{"a zone of three fails and stays away", func(o *operation) {
			o.each(func(s int) *registry.Service { return six(s, 2, 6) })
		}, never, 2 * time.Second},
		{"everything is redeployed: all old endpoints go, new ones come 20 s later", func(o *operation) {
			o.each(func(s int) *registry.Service { return six(s, 0, 0) })
			o.goes(20 * time.Second)
			o.each(func(s int) *registry.Service { return six(s, 6, 12) })
		}, 120, 21 * time.Second},
		{"one of 22 services is removed", func(o *operation) { o.loses(0, 1) }, never, 31 * time.Second},
		{"half of all services are removed", func(o *operation) { o.loses(0, 11) }, 66, 12 * time.Minute},
	}
	lines := []string{"| what is done | held, at most | a dead address stays, at most |", "|---|---|---|"}
	for _, op := range operations {
		t.Run(op.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := operates(t)
				o.again()
				op.do(o)
				o.goes(20 * time.Minute)
				if o.held > max(op.held, 0) || o.dead > op.dead {
					t.Errorf("%d held, dead for %v", o.held, o.dead)
				}
				held := "nothing"
				if o.held > 0 {
					held = fmt.Sprintf("%d entries, for %v", o.held, o.heldFor)
				}
				dead := "under 2 s"
				if o.dead > time.Second {
					dead = o.dead.String()
				}
				lines = append(lines, "| "+op.what+" | "+held+" | "+dead+" |")
			})
		})
	}
	section(t, "the table of operations", lines)
}

// again has the source answer whoever asks for a new connection.
func (o *operation) again() {
	table := o.table()
	go func() {
		ticker := time.NewTicker(5 * time.Minute)
		defer ticker.Stop()
		for {
			select {
			case <-o.t.Context().Done():
				return
			case <-ticker.C:
				rows, _ := table.Snapshot()
				table.Dialed()
				left := make([]*registry.Service, 0, len(rows))
				for _, sv := range rows {
					left = append(left, sv)
				}
				table.Replace(slices.Values(left))
			}
		}
	}()
}
