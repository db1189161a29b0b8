package ads

import (
	"math/rand/v2"
	"time"
)

// The wait between two attempts to connect starts at the base and grows by the factor at
// each failure, up to the cap. A received response resets it.
const (
	backoffBase   = time.Second
	backoffCap    = 30 * time.Second
	backoffFactor = 1.6
	backoffJitter = 0.2
)

// Backoff returns the wait after a number of failures in a row, which is at least 1.
func Backoff(failures int) time.Duration {
	wait := backoffBase
	for i := 1; i < failures && wait < backoffCap; i++ {
		wait = time.Duration(float64(wait) * backoffFactor)
	}
	return jitter(wait)
}

// NextStream returns when to replace a stream that received responses and then ended. The
// moment is random, because a server that stops loses all its clients at once. Streams that
// end early are started at least about one base apart.
func NextStream(started, ended time.Time) time.Time {
	next := ended.Add(rand.N(backoffBase)) //nolint:gosec // spreads load, keeps no secret
	if earliest := started.Add(jitter(backoffBase)); earliest.After(next) {
		return earliest
	}
	return next
}

// jitter spreads a wait. A result above the cap is spread below the cap instead, so that the
// clients of an unreachable server do not all reconnect at the same moment.
func jitter(wait time.Duration) time.Duration {
	spread := float64(wait) * (1 + backoffJitter*(2*rand.Float64()-1)) //nolint:gosec // spreads load, keeps no secret
	if spread > float64(backoffCap) {
		spread = float64(backoffCap) * (1 - backoffJitter*rand.Float64()) //nolint:gosec // as above
	}
	return time.Duration(spread)
}
