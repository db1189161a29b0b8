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
	// Address is host:port, or any target that gRPC resolves.
	Address     string
	Credentials Credentials

	// Node is sent with the first request of each stream. New copies it. See Identity.
	Node *corev3.Node
	Mode Mode

	// MaxReceive is the size of the largest accepted response in bytes; 0 is DefaultMaxReceive.
	MaxReceive int

	// Dialer replaces net.Dialer. Without Lookup it is called with the unresolved Address.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	// Lookup replaces net.DefaultResolver. It is called before each connection.
	Lookup func(ctx context.Context, host string) ([]string, error)

	// Log receives changes of state; nil: nothing is logged.
	Log *slog.Logger

	// Observe is called with each event on the wire, for metrics, from Run's goroutine. It
	// must not block. nil: not called.
	Observe func(Observation)
}

// DefaultMaxReceive is the default of Options.MaxReceive.
const DefaultMaxReceive = 64 << 20

// check returns an error that names the first invalid option.
func (o Options) check() error {
	if o.Address == "" {
		return errors.New("ads: Address is required")
	}
	if o.Mode < Auto || o.Mode > StateOfTheWorld {
		return fmt.Errorf("ads: Mode must be Auto, Delta or StateOfTheWorld (got %d)", o.Mode)
	}
	if o.MaxReceive < 0 {
		return fmt.Errorf("ads: MaxReceive must not be negative (got %d)", o.MaxReceive)
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

// Mode is the variant of the xDS protocol that a client speaks.
type Mode int

// Auto starts with Delta and falls back to StateOfTheWorld if the server does not implement
// Delta.
const (
	Auto Mode = iota
	Delta
	StateOfTheWorld
)

// String returns the name of the mode in the output of status.
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
