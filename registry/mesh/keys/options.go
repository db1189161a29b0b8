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
	DefaultGather   = 200 * time.Millisecond
	DefaultInterval = 5 * time.Second
	DefaultTimeout  = 30 * time.Second
	DefaultMaxBytes = 1 << 20 // istiod takes requests of up to 4 MiB
)

// minBytes holds the longest key with the longest address.
const minBytes = 4 << 10

// Options say where and as whom keys are published. Zero durations and sizes
// take the defaults above.
type Options struct {
	// Replicas lists every replica of istiod, as Dial takes them. An error or an
	// empty list keeps the last one. It is called every Interval. Required.
	Replicas func(ctx context.Context) ([]string, error)

	// Dial returns a connection to a replica, and what gives it back, which may
	// be nil. It does not wait for the connection to stand; ads.Dial has the
	// keepalive that finds a dead one. Required.
	Dial func(replica string) (conn grpc.ClientConnInterface, release func(), err error)

	// Node is who publishes; it is copied. Its name gets a suffix (-1, -2 and so
	// on) where the keys need several nodes. Its label metadata.MarkKey is kept,
	// or added unless Provider is set. Required.
	Node *corev3.Node

	// Provider says that the keys are of what the process provides itself, as
	// dubbo-go publishes them, so that bridges take them.
	Provider bool

	Gather   time.Duration // how long followers of a first change are waited for
	Interval time.Duration // between two listings of the replicas
	Timeout  time.Duration // of a listing, and until a stream is answered
	MaxBytes int           // of the keys of one node, at least 4 KiB

	Log     *slog.Logger      // nil: nothing is logged
	Observe func(Observation) // nil, or called from several goroutines at once
}

// Observed says what an Observation is about.
type Observed int

// What can be observed.
const (
	Announced Observed = iota // a replica shows the keys
	Failed                    // Err is why it does not, Delay the wait before the next attempt
	Ended                     // a stream ended that had announced, Err is why
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
	for name, d := range map[string]time.Duration{"Gather": o.Gather, "Interval": o.Interval, "Timeout": o.Timeout} {
		if d < 0 {
			return fmt.Errorf("keys: %s is negative", name)
		}
	}
	return nil
}

func (o *Options) complete() {
	o.Gather = cmp.Or(o.Gather, DefaultGather)
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
