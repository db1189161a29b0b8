package registry

import (
	"math/rand/v2"
	"time"
)

// Backoff is the wait between attempts: Min, doubled up to Max.
type Backoff struct{ Min, Max time.Duration }

// After returns the wait after so many failures in a row, from 1.
func (b Backoff) After(failures int) time.Duration {
	d := b.Min
	for i := 1; i < failures && d < b.Max; i++ {
		d *= 2
	}
	return min(d, b.Max)
}

// Spread returns After less up to a fifth by chance, so that those who lost one
// server do not all come back at once.
func (b Backoff) Spread(failures int) time.Duration {
	d := b.After(failures)
	return d - time.Duration(rand.Int64N(int64(d)/5+1)) //nolint:gosec // spreads load, keeps no secret
}
