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

// SourceFixture is an empty registry for the tests of a source, in virtual time. Its services are
// identified by numbers.
type SourceFixture struct {
	Source  registry.Source
	Recheck func() // requests a read over a new connection

	// Name returns the name of a service in the table.
	Name func(n int) registry.Name

	// Set replaces the hosts, which are IP addresses, that provide a service.
	Set func(t *testing.T, n int, hosts ...string)

	// Faults make a service unreadable, at once or at its next change. Each is a different
	// cause, and returns the function that ends the fault.
	Faults map[string]func(t *testing.T, n int) (mend func())

	// Spoil adds unreadable inputs to a service, and returns how many.
	Spoil func(t *testing.T, n int) int

	// Away makes the registry unreachable, and returns the function that ends that.
	Away func() (back func())

	Dials    func() int // number of connections
	Requests func() int // number of answered requests
	Kept     func() int // number of objects that the registry keeps for the source, such as watches; nil: none
}

// reportLimit is the time within which a source must report a change or the end of a fault.
const reportLimit = 2 * time.Minute

// Source runs the suite. Within the synctest bubble of each test, open makes a new registry.
func Source(t *testing.T, open func(t *testing.T) SourceFixture) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *sourceRig){
		"everything is reported before the table is synced":      testSynced,
		"services and their endpoints come and go":               testFollowed,
		"only an unreadable service is unknown":                  testFaults,
		"only services that are unreadable together are unknown": testFaultsTogether,
		"a service that was never readable is unknown":           testNeverRead,
		"only bad input is skipped":                              testSpoiled,
		"changes during an outage are found after it":            testAway,
		"only a new connection confirms":                         testRecheck,
		"idle hours leak nothing":                                testIdle,
		"services that come and go leak nothing":                 testChurn,
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

// start starts the source, which ends with the test. The source reads at moments at which no test
// changes anything, because events of the same virtual moment have no order.
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

// fill makes n services of two endpoints each.
func (r *sourceRig) fill(t *testing.T, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		r.Set(t, n, hostOf(n, 1), hostOf(n, 2))
	}
}

// expect requires that a service is known to be provided by exactly these hosts.
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

// others requires that the services from a number on are followed.
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

// doubted requires that a service is unchanged or unknown.
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
		advance(6 * time.Minute) // everything is reread meanwhile
		r.doubted(t, 0, fault)
		mend()
		r.Set(t, 0, hostOf(0, 1), hostOf(0, 2))
		advance(reportLimit)
		r.expect(t, 0, hostOf(0, 1), hostOf(0, 2))
	}
	if _, k := r.table.Snapshot(); len(k.Unknown) > 0 {
		t.Errorf("unknown forever: %v", k.Unknown)
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
	r.Recheck() // does not help if the service cannot be read over the new connection either
	r.others(t, len(faults), len(faults)+5)
	r.mended(t, faults, mends)
}

// mended ends the faults of services and waits until all of them are reported correctly. Until
// then each of them is unknown.
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

// testNeverRead requires that a service that was unreadable from the start is unknown, not absent.
// So a bridge that restarts keeps its entries.
func testNeverRead(t *testing.T, r *sourceRig) {
	faults := slices.Sorted(maps.Keys(r.Faults))
	r.fill(t, 0, len(faults)+10)
	var mends []func()
	for n, fault := range faults {
		mends = append(mends, r.Faults[fault](t, n))
	}
	r.run(t)
	r.others(t, len(faults), len(faults)+10)
	r.expect(t, len(faults)+10) // has no provider
	r.mended(t, faults, mends)
	if _, k := r.table.Snapshot(); len(k.Unknown) > 0 {
		t.Errorf("unknown forever: %v", k.Unknown)
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
		t.Errorf("after an outage of ten minutes: stale %v, %d changes", d.Stale, len(d.Rows))
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
			t.Errorf("%s: a missed change must be found, not reported", name)
		}
	}
}

func testRecheck(t *testing.T, r *sourceRig) {
	r.fill(t, 0, 3)
	r.run(t)
	advance(time.Hour)
	_, before := r.table.Snapshot()
	if before.Dials != 1 {
		t.Errorf("%d reads count as reads over a new connection, but there was one connection", before.Dials)
	}
	dials := r.Dials()
	r.Recheck()
	advance(reportLimit)
	if _, k := r.table.Snapshot(); k.Dials != before.Dials+1 || k.Stale != nil || r.Dials() <= dials {
		t.Errorf("one recheck made %d new connections; got %+v", r.Dials()-dials, k)
	}
}

// StrayGoroutines is how many goroutines may start that do not belong to the source, such as the runtime's
// for finalizers. A leak starts far more of them in a test.
const StrayGoroutines = 10

// flat requires that a function leaks no goroutines, connections or objects in the registry.
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
		t.Errorf("the registry keeps %d objects, before %d", r.Kept(), kept)
	}
	if n := runtime.NumGoroutine(); n > goroutines+StrayGoroutines {
		t.Errorf("%d goroutines, before %d", n, goroutines)
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
		advance(30 * time.Minute) // everything is reread many times
		first = r.Requests() - before
		advance(Long() - time.Hour)
		before = r.Requests()
		advance(30 * time.Minute)
		if last := r.Requests() - before; last > first+first/10+5 {
			t.Errorf("%d requests in the last half hour, %d in the first", last, first)
		}
	})
	if d := reader.Drain(); len(d.Rows) > 0 {
		t.Errorf("%d services changed in idle hours", len(d.Rows))
	}
}

func testChurn(t *testing.T, r *sourceRig) {
	r.fill(t, 0, 20)
	r.run(t)
	r.flat(t, func() {
		for i := range 2 * StrayGoroutines {
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
		for i := range 5 { // excludes periodic reads
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
		t.Errorf("a change takes %d requests with 100 services, %d with 5", many, few)
	}
}

// Long returns the virtual duration of the tests for leaks.
func Long() time.Duration {
	if testing.Short() {
		return 90 * time.Minute
	}
	return 24 * time.Hour
}
