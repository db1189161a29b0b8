package bench_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

// row is one line of the table.
type row struct {
	what        string
	ours, floor string // as they are shown
	ratio       float64
	limit       float64 // of the ratio; 0: none
	over        bool
}

// table gathers the rows of all benchmarks.
type table struct {
	mu   sync.Mutex
	rows []row
}

// results is what TestMain prints when all is done.
var results table

func TestMain(m *testing.M) {
	code := m.Run()
	results.print()
	os.Exit(code)
}

// add records a row and fails the test where it is over its limit.
func (b *table) add(t *testing.T, r row) {
	t.Helper()
	r.over = r.over || r.limit > 0 && r.ratio > r.limit
	if r.over {
		t.Errorf("%s: %s, floor or limit %s, ratio %.2f, at most %.2f", r.what, r.ours, r.floor, r.ratio, r.limit)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = append(b.rows, r)
}

func (b *table) print() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	line := func(cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }
	line("what", "ours", "floor or limit", "ratio", "at most", "")
	for _, r := range b.rows {
		limit, verdict := "", ""
		if r.limit > 0 {
			limit, verdict = fmt.Sprintf("%.2f", r.limit), "ok"
		}
		if r.over {
			verdict = "OVER"
		}
		line(r.what, r.ours, r.floor, fmt.Sprintf("%.2f", r.ratio), limit, verdict)
	}
	_ = w.Flush()
}

// against returns a row of two times.
func against(what string, ours, floor time.Duration, limit float64) row {
	return row{what: what, ours: short(ours), floor: short(floor), ratio: float64(ours) / float64(floor), limit: limit}
}

func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.String()
	}
}

// quantile returns the q-th of the samples, which it sorts.
func quantile(samples []time.Duration, q float64) time.Duration {
	slices.Sort(samples)
	return samples[int(q*float64(len(samples)-1))]
}

// cpu returns what this process has used so far.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
