package bench_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// samples is how many single changes are measured.
const samples = 1000

// single measures a single change: one endpoint changes while nothing else does.
func single(t *testing.T, f *fleet, p *pipe, server string) {
	t.Helper()
	passed := make(chan passage, 1)
	p.tap.report(passed)
	defer p.tap.report(nil)
	r := dialRaw(t, server)
	const floorRoot = "/single"
	must(t, r.create(floorRoot))
	var own, whole, floor []time.Duration
	for n := range samples {
		at := f.change(n%f.services, uint32(2+n/f.services))
		w := <-passed
		own = append(own, w.begun.Sub(at))
		whole = append(whole, w.done.Sub(at))
		floor = append(floor, r.replace(t, floorRoot, n))
	}
	limits := []struct {
		name  string
		q     float64
		limit time.Duration
	}{{"p50", 0.5, 2 * time.Millisecond}, {"p99", 0.99, 10 * time.Millisecond}}
	for _, l := range limits {
		results.add(t, against("single change, own part until its write, "+l.name, quantile(own, l.q), l.limit, 1))
	}
	for _, l := range limits {
		results.add(t, against("single change, until written, "+l.name, quantile(whole, l.q), quantile(floor, l.q), 0))
	}
}

// replace stores one node instead of another, as a change of weight does.
func (r raw) replace(t *testing.T, root string, n int) time.Duration {
	t.Helper()
	ops := []any{&zk.CreateRequest{Path: root + "/" + provider(n+1, 0), Acl: zk.WorldACL(zk.PermAll)}}
	if n > 0 {
		ops = append(ops, &zk.DeleteRequest{Path: root + "/" + provider(n, 0), Version: -1})
	}
	began := time.Now()
	_, err := r.conn.Multi(ops...)
	must(t, err)
	return time.Since(began)
}
