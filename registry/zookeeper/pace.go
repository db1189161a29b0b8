package zookeeper

import (
	"context"
	"math/rand/v2"
	"time"
)

// The library pauses only where no server can be reached. One that takes
// connections and drops them would be called without end, by every client at
// once; so a connection that follows another too soon waits, each time twice
// as long.
const (
	paceLived = 10 * time.Second // a connection that lasts so long was a good one
	paceMin   = 50 * time.Millisecond
	paceMax   = 5 * time.Second
)

// A pace spaces connections out. The library makes one at a time.
type pace struct {
	last time.Time
	wait time.Duration
}

// next waits until the next connection may be made, or ctx ends.
func (p *pace) next(ctx context.Context) {
	now := time.Now()
	switch {
	case p.last.IsZero() || now.Sub(p.last) >= paceLived:
		p.wait = 0
	default:
		p.wait = min(max(2*p.wait, paceMin), paceMax)
	}
	if p.wait > 0 {
		sleep(ctx, p.wait-rand.N(p.wait/5)) //nolint:gosec // spreads load, keeps no secret
	}
	p.last = time.Now()
}
