package bridge

import (
	"maps"
	"slices"
	"sync"

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
func (p *pipeline) projectAll(rows map[registry.Name]registry.Row) func(yield func(*projected) bool) {
	return func(yield func(*projected) bool) {
		for names := range slices.Chunk(slices.Sorted(maps.Keys(rows)), projectedAtATime) {
			part := make([]projected, len(names))
			for i, name := range names {
				part[i].name, part[i].row = name, rows[name]
			}
			p.projectPart(part)
			for i := range part {
				if !yield(&part[i]) {
					return
				}
			}
		}
	}
}

// projectPart works out what services claim and returns when all is done.
func (p *pipeline) projectPart(part []projected) {
	var all sync.WaitGroup
	for some := range slices.Chunk(part, projectedByOne) {
		all.Go(func() {
			for i := range some {
				one := &some[i]
				one.entries, one.state, one.err = p.project(one.row.Service)
			}
		})
	}
	all.Wait()
}
