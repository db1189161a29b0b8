package bridge

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A projected is what became of a service, with what it claims now.
type projected struct {
	name    registry.Name
	row     registry.Row
	entries []registry.Entry
	state   service
	err     error // it cannot be told what it claims
}

// Services are projected in parts, so that what is written of them need not
// all be held at a time, and on all processors where a part is worth it.
const (
	projectedAtATime = 512
	projectedByOne   = 32
)

// projectAll yields the rows with what they claim.
func (w *way) projectAll(rows map[registry.Name]registry.Row) func(yield func(*projected) bool) {
	return func(yield func(*projected) bool) {
		part := make([]projected, 0, min(len(rows), projectedAtATime))
		left := len(rows)
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			left--
			if part = append(part, projected{name: name, row: rows[name]}); len(part) < cap(part) && left > 0 {
				continue
			}
			w.projectPart(part)
			for i := range part {
				if !yield(&part[i]) {
					return
				}
			}
			clear(part)
			part = part[:0]
		}
	}
}

// projectPart works out what services claim and returns when all is done.
func (w *way) projectPart(part []projected) {
	var next atomic.Int64
	work := func() {
		for {
			to := int(next.Add(projectedByOne))
			from := to - projectedByOne
			if from >= len(part) {
				return
			}
			for i := range part[from:min(to, len(part))] {
				p := &part[from+i]
				p.entries, p.state, p.err = w.project(p.row.Service)
			}
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(part)+projectedByOne-1)/projectedByOne) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}
