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

// Again returns when to open the stream after one that delivered: within Base, at
// a moment of our own, since a server that ends loses all its clients at once;
// and not much sooner than Base after the start of one that ended early.
func (b Backoff) Again(started, ended time.Time) time.Time {
	due := ended.Add(time.Duration(rand.Float64() * float64(b.Base))) //nolint:gosec // spreads load, keeps no secret
	if soonest := started.Add(b.jitter(float64(b.Base))); soonest.After(due) {
		return soonest
	}
	return due
}

// jitter spreads a wait; one above the cap is spread below it, so that not all
// clients of a server that is away come back at one moment.
func (b Backoff) jitter(wait float64) time.Duration {
	wait *= 1 + backoffJitter*(2*rand.Float64()-1) //nolint:gosec // spreads load, keeps no secret
	if wait > float64(b.Cap) {
		wait = float64(b.Cap) * (1 - backoffJitter*rand.Float64()) //nolint:gosec // as above
	}
	return time.Duration(wait)
}
