package ads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Defaults of Options.
const (
	DefaultMaxReceive  = 64 << 20
	DefaultSilence     = 15 * time.Second
	DefaultBackoffBase = time.Second
	DefaultBackoffCap  = 30 * time.Second
)

// Options configure a Client. Only Address is required.
type Options struct {
	// Address is host:port, or any target that gRPC resolves.
	Address string
	// Credentials say how the server is authenticated and who we are.
	Credentials Credentials
	// Node is sent with the first request of each stream; see Identity. It is
	// copied.
	Node *corev3.Node
	// Mode is the variant of the protocol; Auto by default.
	Mode Mode
	// MaxReceive is the largest response taken, in bytes.
	MaxReceive int
	// Backoff spaces the attempts to connect.
	Backoff Backoff
	// Silence is how long a name may stay unanswered on a live stream before it
	// is told as unknown.
	Silence time.Duration
	// Dialer replaces the network's; Address is then handed to it unresolved,
	// unless Lookup is set.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// Lookup returns the addresses of the host of Address, of its replicas where
	// it knows them. It is asked for each connection; net's resolver if it is nil.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Log receives changes of state; nothing is logged if it is nil.
	Log *slog.Logger
	// Observe is told what happens on the wire, for metrics. It is called from
	// Run's goroutine and must not block.
	Observe func(Observation)
}

// Backoff spaces the attempts to connect: Base, times 1.6 at each failure,
// give or take a fifth, at most Cap. It starts anew once a stream has delivered
// a message; the stream after that one is opened within Base.
type Backoff struct {
	Base time.Duration
	Cap  time.Duration
}

// Mode is the variant of the protocol a client speaks.
type Mode int

// The modes. Auto starts with Delta and falls back to StateOfTheWorld where the
// server does not implement it.
const (
	Auto Mode = iota
	Delta
	StateOfTheWorld
)

// String returns the mode's name as status shows it.
func (m Mode) String() string {
	switch m {
	case Delta:
		return "delta"
	case StateOfTheWorld:
		return "state-of-the-world"
	default:
		return "auto"
	}
}

func (o Options) check() error {
	if o.Address == "" {
		return errors.New("ads: Address: required")
	}
	if o.Mode < Auto || o.Mode > StateOfTheWorld {
		return fmt.Errorf("ads: Mode: %d is none of Auto, Delta, StateOfTheWorld", o.Mode)
	}
	for name, d := range map[string]time.Duration{"Silence": o.Silence, "Backoff.Base": o.Backoff.Base, "Backoff.Cap": o.Backoff.Cap} {
		if d < 0 {
			return fmt.Errorf("ads: %s: %s is negative", name, d)
		}
	}
	if o.MaxReceive < 0 {
		return fmt.Errorf("ads: MaxReceive: %d is negative", o.MaxReceive)
	}
	return o.Credentials.check(o.Address)
}

func (o Options) withDefaults() Options {
	if o.MaxReceive == 0 {
		o.MaxReceive = DefaultMaxReceive
	}
	if o.Silence == 0 {
		o.Silence = DefaultSilence
	}
	if o.Backoff.Base == 0 {
		o.Backoff.Base = DefaultBackoffBase
	}
	if o.Backoff.Cap == 0 {
		o.Backoff.Cap = DefaultBackoffCap
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	return o
}

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
