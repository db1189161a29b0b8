package ads

import (
	"math/rand/v2"
	"time"
)

// Attempts to connect are spaced by the base, times a factor at each failure, at most
// the cap. A received message resets that.
const (
	backoffBase   = time.Second
	backoffCap    = 30 * time.Second
	backoffFactor = 1.6
	backoffJitter = 0.2
)

// Backoff returns the wait after so many failures in a row, from 1.
func Backoff(failures int) time.Duration {
	wait := backoffBase
	for i := 1; i < failures && wait < backoffCap; i++ {
		wait = time.Duration(float64(wait) * backoffFactor)
	}
	return jitter(wait)
}

// NextStream returns when to open the stream after one that delivered. It is a random
// moment within the base, since a server that ends loses all its clients at once, and not
// much sooner than the base after the start of a stream that ended early.
func NextStream(started, ended time.Time) time.Time {
	due := ended.Add(rand.N(backoffBase)) //nolint:gosec // spreads load, keeps no secret
	if soonest := started.Add(jitter(backoffBase)); soonest.After(due) {
		return soonest
	}
	return due
}

// jitter spreads a wait. One above the cap is spread below it, so that the clients
// of a server that is away do not return at the same moment.
func jitter(wait time.Duration) time.Duration {
	spread := float64(wait) * (1 + backoffJitter*(2*rand.Float64()-1)) //nolint:gosec // spreads load, keeps no secret
	if spread > float64(backoffCap) {
		spread = float64(backoffCap) * (1 - backoffJitter*rand.Float64()) //nolint:gosec // as above
	}
	return time.Duration(spread)
}
