package ads

import (
	"math/rand/v2"
	"time"
)

const (
	backoffFactor = 1.6
	backoffJitter = 0.2
)

// After returns the wait after so many failures in a row, from 1.
func (b Backoff) After(failures int) time.Duration {
	wait := float64(b.Base)
	for i := 1; i < failures && wait < float64(b.Cap); i++ {
		wait *= backoffFactor
	}
	return b.jitter(wait)
}

// slow returns the longest wait.
func (b Backoff) slow() time.Duration { return b.jitter(float64(b.Cap)) }

// jitter spreads a wait; one above the cap is spread below it, so that not all
// clients of a server that is away come back at one moment.
func (b Backoff) jitter(wait float64) time.Duration {
	wait *= 1 + backoffJitter*(2*rand.Float64()-1) //nolint:gosec // spreads load, keeps no secret
	if wait > float64(b.Cap) {
		wait = float64(b.Cap) * (1 - backoffJitter*rand.Float64()) //nolint:gosec // as above
	}
	return time.Duration(wait)
}
