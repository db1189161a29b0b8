package bridge

import (
	"errors"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A budget says how many calls a target is given at a time, and how many in a
// second. After a call that failed it is half of what it was, and with each
// round of calls that succeed one call more, up to what the options permit: a
// target that throttles or breaks down is asked for less until it keeps up.
type budget struct {
	opts   *Options // Workers and Rate
	window float64  // calls at a time by now; 0: as many as there are workers
	cutAt  time.Time
	paid   time.Time // up to when calls were made in advance, by the rate
}

// burst is for how long calls may be made in advance of the rate.
const burst = 100 * time.Millisecond

// calls returns how many calls may be under way.
func (b *budget) calls() int {
	if b.window == 0 {
		return b.opts.Workers
	}
	return min(b.opts.Workers, max(1, int(b.window)))
}

// opens returns when the rate permits the next call.
func (b *budget) opens() time.Time {
	if b.opts.Rate <= 0 {
		return time.Time{}
	}
	return b.paid.Add(-burst)
}

// spend notes that a call begins. A smaller window makes the rate smaller too.
func (b *budget) spend(now time.Time) {
	if b.opts.Rate > 0 {
		rate := b.opts.Rate * float64(b.calls()) / float64(b.opts.Workers)
		b.paid = later(b.paid, now).Add(time.Duration(float64(time.Second) / rate))
	}
}

// callDone handles the result of a call. Failures of calls that began before the
// window was cut last say nothing new, and a refusal or a race says nothing of
// how much the target can take.
func (b *budget) callDone(began time.Time, err error, now time.Time) {
	switch {
	case err == nil:
		if b.window > 0 {
			b.window = min(float64(b.opts.Workers), b.window+1/b.window)
		}
	case errors.Is(err, registry.ErrConflict), errors.Is(err, registry.ErrRefused), began.Before(b.cutAt):
	default:
		b.window, b.cutAt = max(1, float64(b.calls())/2), now
	}
}
