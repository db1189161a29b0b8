package ads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Options configure a Client. Only Address is required.
type Options struct {
	Address     string       // host:port, or any target that gRPC resolves
	Credentials Credentials  // of the server and the client
	Node        *corev3.Node // sent with the first request of each stream, copied; see Identity
	Mode        Mode         // variant of the protocol
	MaxReceive  int          // bytes of the largest response that is accepted; 0 is DefaultMaxReceive

	// Dialer replaces the network's. It receives Address unresolved, unless Lookup is
	// set. Lookup returns the addresses of a host, for each connection; nil: net's.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	Lookup func(ctx context.Context, host string) ([]string, error)

	Log *slog.Logger // receives changes of state; nil: nothing is logged

	// Observe is called with what happens on the wire, for metrics, from Run's
	// goroutine. It must not block.
	Observe func(Observation)
}

// DefaultMaxReceive is the default of Options.MaxReceive.
const DefaultMaxReceive = 64 << 20

func (o Options) check() error {
	if o.Address == "" {
		return errors.New("ads: Address: required")
	}
	if o.Mode < Auto || o.Mode > StateOfTheWorld {
		return fmt.Errorf("ads: Mode: %d is none of Auto, Delta, StateOfTheWorld", o.Mode)
	}
	if o.MaxReceive < 0 {
		return fmt.Errorf("ads: MaxReceive: %d is negative", o.MaxReceive)
	}
	return o.Credentials.check(o.Address)
}

func (o Options) withDefaults() Options {
	o.MaxReceive = cmp.Or(o.MaxReceive, DefaultMaxReceive)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	return o
}

// Mode is the variant of the protocol that a client speaks.
type Mode int

// The modes. Auto starts with Delta and falls back to StateOfTheWorld if the
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
