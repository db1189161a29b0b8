package client

import (
	"log/slog"
	"time"
)

// Options tune a Client. A negative duration says that there is none; of StateAge it is
// an error.
type Options struct {
	// Formats are those of URLs that name none, by kind of registry, such as
	// {"zookeeper": "kratos"}; a kind that is missing: dubbo-interface.
	Formats map[string]string

	// StateFile keeps the last known answers, so that an application that starts
	// while its registry is away has something to call; empty: none. Each client has
	// a file of its own: of two that share one each erases the answers of the other.
	StateFile string

	// StateAge is how old an answer of the state file may be to be used: since the
	// registry confirmed it last. 0: 24 h.
	StateAge time.Duration

	// KeepFresh is how long what Resolve asked for once is kept up to date; 0: 1 min.
	KeepFresh time.Duration

	// DrainDelay is how long Deregister waits on after this process no longer sees
	// the instance: others learn of it a little later, and those that ask from
	// time to time when they ask next. 0: 1 s.
	DrainDelay time.Duration

	// ForgetAfter is how long the registry has to be back, without a break, before what
	// was known and is not reported any more goes: providers come back one by one.
	// Where it flaps that goes after four times as long in all. 0: 15 s.
	ForgetAfter time.Duration

	// Grace is how long Close waits for what is published to be withdrawn;
	// 0: 5 s.
	Grace time.Duration

	// Log receives changes of state; nothing is logged if it is nil.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Log = orDiscard(o.Log)
	o.KeepFresh, o.DrainDelay = orElse(o.KeepFresh, time.Minute), orElse(o.DrainDelay, time.Second)
	o.StateAge = orElse(o.StateAge, 24*time.Hour)
	o.ForgetAfter, o.Grace = orElse(o.ForgetAfter, 15*time.Second), orElse(o.Grace, 5*time.Second)
	return o
}

// orElse returns a duration, another where it is 0, and none where it is negative.
func orElse(d, other time.Duration) time.Duration {
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
