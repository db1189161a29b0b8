package conformance

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// SourceFixture is an empty registry to try a source on, in virtual time.
// Numbers name its services: equal numbers make equal ones.
type SourceFixture struct {
	Source  registry.Source
	Recheck func() // asks for a reading over a new connection

	// Name is the name that the table has for a service.
	Name func(n int) registry.Name

	// Set makes hosts, which are IP addresses, all that provide a service. With
	// none of them nobody does.
	Set func(t *testing.T, n int, hosts ...string)

	// Faults make a service unreadable, at once or when it changes, and return
	// what mends that. Each is another reason.
	Faults map[string]func(t *testing.T, n int) (mend func())

	// Spoil adds inputs that cannot be read beside what provides a service, and
	// returns how many.
	Spoil func(t *testing.T, n int) int

	// Away makes the registry unreachable, and returns what brings it back.
	Away func() (back func())

	Dials    func() int // connections that were made
	Requests func() int // that were answered
	Kept     func() int // what the registry keeps for the source, such as watches; nil: nothing
}

// reportLimit is how long a source has to report a change, or of the end of a
// fault, whatever has happened before.
const reportLimit = 2 * time.Minute

// Source runs the suite; open makes a registry of its own for each test, within
// the bubble of its time.
func Source(t *testing.T, open func(t *testing.T) SourceFixture) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *sourceRig){
		"everything is reported before the table is synced":      testSynced,
		"services and their endpoints come and go":               testFollowed,
		"what cannot be read costs itself":                       testFaults,
		"all that cannot be read at once costs itself":           testFaultsTogether,
		"what could never be read may be there":                  testNeverRead,
		"bad input costs that input":                             testSpoiled,
		"what changes while away is found, nothing before":       testAway,
		"a new connection alone confirms":                        testRecheck,
		"hours in which nothing happens leave nothing":           testIdle,
		"what comes and goes leaves nothing":                     testChurn,
		"the work of a change does not grow with what is stored": testWork,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &sourceRig{SourceFixture: open(t), table: registry.NewTable()}
				test(t, r)
			})
		})
	}
}

type sourceRig struct {
	SourceFixture
	table *registry.Table
}

// run starts the source and waits until it has reported everything.
func (r *sourceRig) run(t *testing.T) {
	t.Helper()
	r.start(t)
	advance(reportLimit)
}

// start starts the source, which ends with the test. It asks at moments at which no
// test changes anything: what happens at one moment has no order.
func (r *sourceRig) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	time.AfterFunc(7*time.Millisecond, func() { done <- r.Source.Run(ctx, r.table) })
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func advance(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

func hostOf(n, i int) string { return fmt.Sprintf("10.%d.%d.%d", n/250, n%250, i) }

// fill makes a service of two endpoints for each number.
func (r *sourceRig) fill(t *testing.T, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		r.Set(t, n, hostOf(n, 1), hostOf(n, 2))
	}
}

// expect fails the test unless a service is known to be provided by these hosts.
func (r *sourceRig) expect(t *testing.T, n int, hosts ...string) {
	t.Helper()
	rows, k := r.table.Snapshot()
	if err := k.Of(r.Name(n)); err != nil || !k.Synced {
		t.Errorf("service %d is not known: synced %v, %v", n, k.Synced, err)
	}
	r.expectHosts(t, rows[r.Name(n)], n, hosts...)
}

func (*sourceRig) expectHosts(t *testing.T, s *registry.Service, n int, hosts ...string) {
	t.Helper()
	var got []string
	if s != nil {
		for _, e := range s.Endpoints {
			got = append(got, e.Host)
		}
	}
	slices.Sort(got)
	slices.Sort(hosts)
	if !slices.Equal(got, hosts) {
		t.Errorf("service %d is provided by %q, want %q", n, got, hosts)
	}
}

func testSynced(t *testing.T, r *sourceRig) {
	r.fill(t, 0, 20)
	r.start(t)
	for began := time.Now(); time.Since(began) < reportLimit; advance(time.Millisecond) {
		if rows, k := r.table.Snapshot(); k.Synced {
			if len(rows) != 20 || len(k.Unknown) > 0 {
				t.Errorf("synced with %d services of 20, unknown %v", len(rows), k.Unknown)
			}
			break
		}
	}
	for n := range 20 {
		r.expect(t, n, hostOf(n, 1), hostOf(n, 2))
	}
}

func testFollowed(t *testing.T, r *sourceRig) {
	r.run(t)
	if _, k := r.table.Snapshot(); !k.Synced || k.Stale != nil {
		t.Errorf("an empty registry is not known to be empty: %+v", k)
	}
	for _, hosts := range [][]string{{"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}, {"10.0.0.2"}, {"10.0.0.3"}, {}, {"10.0.0.1"}} {
		r.Set(t, 0, hosts...)
		r.Set(t, 1, "10.0.1.1")
		advance(reportLimit)
		r.expect(t, 0, hosts...)
		r.expect(t, 1, "10.0.1.1")
	}
}

// others fails the test unless the services from a number on are followed.
func (r *sourceRig) others(t *testing.T, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		r.Set(t, n, hostOf(n, 1), hostOf(n, 3))
	}
	advance(reportLimit)
	for n := from; n < to; n++ {
		r.expect(t, n, hostOf(n, 1), hostOf(n, 3))
	}
	for n := from; n < to; n++ {
		r.Set(t, n, hostOf(n, 1), hostOf(n, 2))
	}
	advance(reportLimit)
	for n := from; n < to; n++ {
		r.expect(t, n, hostOf(n, 1), hostOf(n, 2))
	}
}

// doubted fails the test unless a service is there as it was, or not known.
func (r *sourceRig) doubted(t *testing.T, n int, fault string) {
	t.Helper()
	rows, k := r.table.Snapshot()
	switch {
	case k.Stale != nil:
		t.Errorf("%s: everything is stale: %v", fault, k.Stale)
	case rows[r.Name(n)] == nil && k.Of(r.Name(n)) == nil:
		t.Errorf("%s: service %d is known to be absent", fault, n)
	case k.Of(r.Name(n)) == nil:
		t.Errorf("%s: service %d is known, and cannot be read", fault, n)
	}
}

func testFaults(t *testing.T, r *sourceRig) {
	r.fill(t, 0, 10)
	r.run(t)
	for _, fault := range slices.Sorted(maps.Keys(r.Faults)) {
		mend := r.Faults[fault](t, 0)
		r.others(t, 1, 10)
		r.doubted(t, 0, fault)
		advance(6 * time.Minute) // everything is read again meanwhile
		r.doubted(t, 0, fault)
		mend()
		r.Set(t, 0, hostOf(0, 1), hostOf(0, 2))
		advance(reportLimit)
		r.expect(t, 0, hostOf(0, 1), hostOf(0, 2))
	}
	if _, k := r.table.Snapshot(); len(k.Unknown) > 0 {
		t.Errorf("unknown for ever: %v", k.Unknown)
	}
}

func testFaultsTogether(t *testing.T, r *sourceRig) {
	faults := slices.Sorted(maps.Keys(r.Faults))
	r.fill(t, 0, len(faults)+5)
	r.run(t)
	var mends []func()
	for n, fault := range faults {
		mends = append(mends, r.Faults[fault](t, n))
	}
	r.Recheck() // what was never read over a connection is no better known
	r.others(t, len(faults), len(faults)+5)
	r.mended(t, faults, mends)
}

// mended ends faults of services, each of which makes its own unknown until then,
// and waits until all of them are reported as they are.
func (r *sourceRig) mended(t *testing.T, faults []string, mends []func()) {
	t.Helper()
	for n, fault := range faults {
		r.doubted(t, n, fault)
		mends[n]()
		r.Set(t, n, hostOf(n, 1), hostOf(n, 2))
	}
	advance(reportLimit)
	for n := range faults {
		r.expect(t, n, hostOf(n, 1), hostOf(n, 2))
	}
}

// testNeverRead shows that nobody may conclude from what was unreadable from the
// start: who holds entries of it, as a bridge that starts anew does, keeps them.
func testNeverRead(t *testing.T, r *sourceRig) {
	faults := slices.Sorted(maps.Keys(r.Faults))
	r.fill(t, 0, len(faults)+10)
	var mends []func()
	for n, fault := range faults {
		mends = append(mends, r.Faults[fault](t, n))
	}
	r.run(t)
	r.others(t, len(faults), len(faults)+10)
	r.expect(t, len(faults)+10) // nobody provides it
	r.mended(t, faults, mends)
	if _, k := r.table.Snapshot(); len(k.Unknown) > 0 {
		t.Errorf("unknown for ever: %v", k.Unknown)
	}
}

func testSpoiled(t *testing.T, r *sourceRig) {
	r.fill(t, 0, 5)
	r.run(t)
	bad := r.Spoil(t, 0)
	r.others(t, 0, 5)
	if got := r.table.Summary().Defects; got != bad {
		t.Errorf("%d inputs are skipped, want %d: %v", got, bad, r.table.Skipped())
	}
}

func testAway(t *testing.T, r *sourceRig) {
	r.fill(t, 0, 5)
	r.run(t)
	reader := r.table.Reader()
	defer reader.Close()
	reader.Drain()
	back := r.Away()
	r.Set(t, 0) // removed
	r.Set(t, 1) // removed and added again
	r.Set(t, 1, hostOf(1, 1), hostOf(1, 2))
	r.Set(t, 2, hostOf(2, 7)) // replaced
	r.Set(t, 5, hostOf(5, 1)) // added
	advance(10 * time.Minute)
	d := reader.Drain()
	if d.Stale == nil || len(d.Rows) > 0 {
		t.Errorf("ten minutes away: stale %v, %d changes", d.Stale, len(d.Rows))
	}
	back()
	advance(reportLimit)
	r.expect(t, 0)
	r.expect(t, 1, hostOf(1, 1), hostOf(1, 2))
	r.expect(t, 2, hostOf(2, 7))
	r.expect(t, 3, hostOf(3, 1), hostOf(3, 2))
	r.expect(t, 5, hostOf(5, 1))
	for name, row := range reader.Drain().Rows {
		if !row.Found {
			t.Errorf("%s: what was missed is found, not reported", name)
		}
	}
}

func testRecheck(t *testing.T, r *sourceRig) {
	r.fill(t, 0, 3)
	r.run(t)
	advance(time.Hour)
	_, before := r.table.Snapshot()
	if before.Dials != 1 {
		t.Errorf("%d readings count as those of a new connection, of one connection", before.Dials)
	}
	dials := r.Dials()
	r.Recheck()
	advance(reportLimit)
	if _, k := r.table.Snapshot(); k.Dials != before.Dials+1 || k.Stale != nil || r.Dials() <= dials {
		t.Errorf("asked for once: %d new connections, got %+v", r.Dials()-dials, k)
	}
}

// Comings is how many goroutines of the process, such as those of the runtime
// that run finalizers, may come without being a source's. What leaks does so far
// more often in a test.
const Comings = 10

// flat fails the test where something costs goroutines or connections, or makes
// the registry keep more.
func (r *sourceRig) flat(t *testing.T, what func()) {
	t.Helper()
	advance(10 * time.Minute)
	kept := 0
	if r.Kept != nil {
		kept = r.Kept()
	}
	goroutines, dials := runtime.NumGoroutine(), r.Dials()
	what()
	advance(10 * time.Minute)
	if r.Kept != nil && r.Kept() > kept {
		t.Errorf("the registry keeps %d for us, it kept %d", r.Kept(), kept)
	}
	if n := runtime.NumGoroutine(); n > goroutines+Comings {
		t.Errorf("%d goroutines, there were %d", n, goroutines)
	}
	if n := r.Dials(); n != dials {
		t.Errorf("%d new connections", n-dials)
	}
}

func testIdle(t *testing.T, r *sourceRig) {
	r.fill(t, 0, 5)
	r.run(t)
	reader := r.table.Reader()
	defer reader.Close()
	reader.Drain()
	var first int
	r.flat(t, func() {
		before := r.Requests()
		advance(30 * time.Minute) // in which everything is read many times
		first = r.Requests() - before
		advance(Long() - time.Hour)
		before = r.Requests()
		advance(30 * time.Minute)
		if last := r.Requests() - before; last > first+first/10+5 {
			t.Errorf("%d requests in the last half hour, %d in the first", last, first)
		}
	})
	if d := reader.Drain(); len(d.Rows) > 0 {
		t.Errorf("%d services changed in hours in which nothing happened", len(d.Rows))
	}
}

func testChurn(t *testing.T, r *sourceRig) {
	r.fill(t, 0, 20)
	r.run(t)
	r.flat(t, func() {
		for i := range 2 * Comings {
			r.Set(t, 3, hostOf(3, 1), hostOf(3, 2), hostOf(3, 3+i))
			r.Set(t, 100+i, hostOf(100+i, 1))
			advance(30 * time.Second)
			r.Set(t, 100+i)
			advance(30 * time.Second)
		}
		r.fill(t, 3, 4)
	})
	r.expect(t, 3, hostOf(3, 1), hostOf(3, 2))
}

func testWork(t *testing.T, r *sourceRig) {
	r.run(t)
	cost := func() int {
		r.Set(t, 0, hostOf(0, 1))
		advance(reportLimit)
		least := 0
		for i := range 5 { // what is read at intervals is not of the change
			before := r.Requests()
			r.Set(t, 0, hostOf(0, 2+i))
			advance(500 * time.Millisecond)
			if n := r.Requests() - before; i == 0 || n < least {
				least = n
			}
			r.expect(t, 0, hostOf(0, 2+i))
			advance(reportLimit)
		}
		return least
	}
	r.fill(t, 1, 5)
	few := cost()
	r.fill(t, 5, 100)
	if many := cost(); many > few+2 {
		t.Errorf("a change costs %d requests beside 100 services, %d beside 5", many, few)
	}
}

// Long returns how much virtual time the tests that look for leaks run for.
func Long() time.Duration {
	if testing.Short() {
		return 90 * time.Minute
	}
	return 24 * time.Hour
}
