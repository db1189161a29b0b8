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

// minBytes is enough for the longest key with the longest address.
const minBytes = 4 << 10

// Options configure to which istiod, and as which node, keys are published. Zero durations and
// sizes are the defaults above.
type Options struct {
	// Replicas lists every replica of istiod, as arguments of Dial. It is called every
	// Interval. After an error or an empty list the last list is used. Required.
	Replicas func(ctx context.Context) ([]string, error)

	// Dial returns a connection to a replica, and a function that releases it, which may be
	// nil. It does not wait until the connection is established. It should use ads.Dial,
	// whose keepalive detects a dead connection. Required.
	Dial func(replica string) (conn grpc.ClientConnInterface, release func(), err error)

	// Node is the node that publishes the keys. New copies it. If the keys require several
	// nodes, its name gets a suffix: -1, -2 and so on. Its label metadata.MarkKey is kept. If
	// there is none, it is added unless Provider is set. Required.
	Node *corev3.Node

	// Provider means that the process itself provides the services, like dubbo-go. Bridges
	// import its keys.
	Provider bool

	Debounce time.Duration // between the first change of the keys and their publication
	Interval time.Duration // between two listings of the replicas
	Timeout  time.Duration // of a listing, and of the first response on a stream
	MaxBytes int           // of the keys of one node, at least 4 KiB

	Log     *slog.Logger      // nil: nothing is logged
	Observe func(Observation) // called concurrently; may be nil
}

// Observed is the kind of an Observation.
type Observed int

// The kinds of observations.
const (
	Announced Observed = iota // a replica shows the keys
	Failed                    // it does not; Err: why; Delay: the wait before the next attempt
	Ended                     // a stream that announced keys ended; Err: why
)

// Observation is one event of the publication at one replica.
type Observation struct {
	Replica  string
	Kind     Observed
	Keys     int           // announced
	Streams  int           // opened for them
	Bytes    int           // of the keys on the opened streams
	Duration time.Duration // of the announcement
	Delay    time.Duration
	Err      error
}

func (o *Options) check() error {
	switch {
	case o.Replicas == nil:
		return errors.New("keys: Replicas is required")
	case o.Dial == nil:
		return errors.New("keys: Dial is required")
	case o.Node.GetId() == "":
		return errors.New("keys: Node is required")
	case o.MaxBytes != 0 && o.MaxBytes < minBytes:
		return fmt.Errorf("keys: MaxBytes must be at least %d (got %d)", minBytes, o.MaxBytes)
	}
	for name, d := range map[string]time.Duration{"Debounce": o.Debounce, "Interval": o.Interval, "Timeout": o.Timeout} {
		if d < 0 {
			return fmt.Errorf("keys: %s must not be negative", name)
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
