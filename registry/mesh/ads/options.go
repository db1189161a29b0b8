package ads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
