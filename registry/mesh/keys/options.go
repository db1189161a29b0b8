package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
)

// The defaults of Options.
const (
	DefaultDebounce = 200 * time.Millisecond
	DefaultInterval = 5 * time.Second
	DefaultTimeout  = 30 * time.Second
	DefaultMaxBytes = 1 << 20 // istiod accepts requests of up to 4 MiB
)

// minBytes holds the longest key with the longest address.
const minBytes = 4 << 10

// Options say to which istiod and as which node keys are published. Zero durations
// and sizes are the defaults above.
type Options struct {
	// Replicas lists every replica of istiod, as arguments of Dial. After an error or
	// an empty list the last list is kept. It is called every Interval. Required.
	Replicas func(ctx context.Context) ([]string, error)

	// Dial returns a connection to a replica, and what releases it, which may be nil.
	// It does not wait until the connection is established; ads.Dial has the keepalive
	// that finds a dead one. Required.
	Dial func(replica string) (conn grpc.ClientConnInterface, release func(), err error)

	// Node is the node that publishes; it is copied. Its name gets a suffix (-1, -2 and
	// so on) if the keys require several nodes. Its label metadata.MarkKey is kept, or
	// added unless Provider is set. Required.
	Node *corev3.Node

	// Provider says that the process itself provides the services, as with dubbo-go, so
	// that bridges import the keys.
	Provider bool

	Debounce time.Duration // how long further changes are waited for after a first one
	Interval time.Duration // between two listings of the replicas
	Timeout  time.Duration // of a listing, and until a stream is answered
	MaxBytes int           // of the keys of one node, at least 4 KiB

	Log     *slog.Logger      // nil: nothing is logged
	Observe func(Observation) // nil, or called concurrently
}

// Observed says what an Observation is about.
type Observed int

// What can be observed.
const (
	Announced Observed = iota // a replica has the keys
	Failed                    // Err is why it has not, Delay the wait before the next attempt
	Ended                     // a stream that announced keys ended, Err is why
)

// Observation is one thing that happened to the keys at one replica.
type Observation struct {
	Replica  string
	Kind     Observed
	Keys     int           // announced
	Streams  int           // opened for it
	Bytes    int           // of keys in those
	Duration time.Duration // of the announcement
	Delay    time.Duration
	Err      error
}

func (o *Options) check() error {
	switch {
	case o.Replicas == nil:
		return errors.New("keys: Replicas is not set")
	case o.Dial == nil:
		return errors.New("keys: Dial is not set")
	case o.Node.GetId() == "":
		return errors.New("keys: Node is not set")
	case o.MaxBytes != 0 && o.MaxBytes < minBytes:
		return fmt.Errorf("keys: MaxBytes: %d is less than %d", o.MaxBytes, minBytes)
	}
	for name, d := range map[string]time.Duration{"Debounce": o.Debounce, "Interval": o.Interval, "Timeout": o.Timeout} {
		if d < 0 {
			return fmt.Errorf("keys: %s is negative", name)
		}
	}
	return nil
}

func (o *Options) setDefaults() {
	o.Debounce = cmp.Or(o.Debounce, DefaultDebounce)
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
}
