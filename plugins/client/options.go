package client

import (
	"log/slog"
	"time"
)

// Options tune a Client. A negative duration means none, except for StateAge, where it is
// an error.
type Options struct {
	// Formats has the default format of URLs, by kind of registry, such as
	// {"zookeeper": "kratos"}. The default of a missing kind is dubbo-interface.
	Formats map[string]string

	// StateFile stores the last known answers, so that an application that starts while
	// its registry is unreachable has endpoints to call; empty: none. Each client needs a
	// file of its own: clients that share one erase each other's answers.
	StateFile string

	// StateAge is the maximum age of an answer of the state file, counted from when the
	// registry last confirmed it; 0: 24 h.
	StateAge time.Duration

	// KeepFresh is how long a query of Resolve is kept up to date; 0: 1 min.
	KeepFresh time.Duration

	// DrainDelay is how long Deregister waits after this process no longer sees the
	// instance: other consumers learn of the removal a little later, or when they next
	// poll. 0: 1 s.
	DrainDelay time.Duration

	// ForgetAfter is how long the registry must be reachable again, without a break, before
	// known endpoints that it does not report are dropped: providers come back one by one.
	// If the registry flaps, they are dropped after four times that in total. 0: 15 s.
	ForgetAfter time.Duration

	// Grace is how long Close waits for instances to be withdrawn; 0: 5 s.
	Grace time.Duration

	// Log receives changes of state; nil: nothing is logged.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Log = orDiscard(o.Log)
	o.KeepFresh, o.DrainDelay = orDefault(o.KeepFresh, time.Minute), orDefault(o.DrainDelay, time.Second)
	o.StateAge = orDefault(o.StateAge, 24*time.Hour)
	o.ForgetAfter, o.Grace = orDefault(o.ForgetAfter, 15*time.Second), orDefault(o.Grace, 5*time.Second)
	return o
}

// orDefault returns d, the other duration if d is 0, and 0 if d is negative.
func orDefault(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return max(d, 0)
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
