package debug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
)

// The defaults of Options.
const (
	DefaultInterval        = 5 * time.Second
	DefaultTimeout         = 10 * time.Second
	DefaultGrace           = 10 * time.Second
	DefaultConnectionGrace = 5 * time.Minute // dubbo-go waits up to 2 minutes before it connects again
	DefaultMaxBytes        = 16 << 20
)

// Options configure where and how the mapping is read. Zero durations and sizes are the
// defaults above.
type Options struct {
	// Replicas lists every replica of istiod: for HTTP as host or host:port, for xDS as the
	// argument of XDSOptions.Dial. After an error or an empty list the last list is used. See
	// Static, DNS and Endpoints. Required.
	Replicas Lister

	// HTTP or XDS must be set, but not both.
	HTTP *HTTPOptions
	XDS  *XDSOptions

	Interval time.Duration // between two reads of a replica
	Timeout  time.Duration // of one request to one replica
	MaxBytes int64         // of one response: the list of connections, or one client

	// Grace is how long a key is kept after a connected client withdrew it. ConnectionGrace
	// is how long keys are kept after the connection of their client ended.
	Grace           time.Duration
	ConnectionGrace time.Duration

	// OwnNodes are nodes in istiod's form `pod.namespace` whose keys are ignored. The keys of
	// nodes with the label metadata.MarkKey are ignored too: a bridge must not import the keys
	// that a bridge publishes.
	OwnNodes []string

	// Bridged reads the keys that bridges publish too. Consumers need it.
	Bridged bool

	// Legacy reads keys in the forms of naming.ParseLegacyServiceKey too.
	Legacy bool

	Log     *slog.Logger      // nil: nothing is logged
	Observe func(Observation) // called after each request, concurrently; may be nil
}

// HTTPOptions configure how istiod's debug port is read. The port is that of the replica, or
// else MonitoringPort, or else 8080. Without a token istiod allows it only over loopback.
type HTTPOptions struct {
	// TokenFile holds a service account token of audience istio-ca. It is read before each
	// request; empty: none.
	TokenFile string

	// ClusterID is sent as the header `clusterid`, for a token of a remote cluster; empty: not.
	ClusterID string

	// Insecure allows sending the token to other machines over plain HTTP.
	Insecure bool

	// Dial replaces net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// XDSOptions configure how istiod is read over xDS. istiod answers only on its TLS port, and
// only identities of its root namespace.
type XDSOptions struct {
	// Dial returns a connection to a replica, and a function that releases it, which may be
	// nil. It does not wait until the connection is established. Required.
	Dial func(replica string) (conn grpc.ClientConnInterface, release func(), err error)

	// Node is sent on each stream. It is not changed. Required.
	Node *core.Node
}

// Observation is the result of one request to one replica.
type Observation struct {
	Replica  string
	Query    string // adsz, connections or client
	Bytes    int64  // read of the response
	Clients  int    // in the response
	Duration time.Duration
	Err      error // an *Error, or nil
}

func (o *Options) check() error {
	switch {
	case o.Replicas == nil:
		return errors.New("debug: Replicas is required")
	case (o.HTTP == nil) == (o.XDS == nil):
		return errors.New("debug: exactly one of HTTP and XDS must be set")
	case o.XDS != nil && (o.XDS.Dial == nil || o.XDS.Node == nil):
		return errors.New("debug: XDS.Dial and XDS.Node are required")
	case o.MaxBytes < 0:
		return errors.New("debug: MaxBytes must not be negative")
	}
	for name, d := range map[string]time.Duration{
		"Interval": o.Interval, "Timeout": o.Timeout,
		"Grace": o.Grace, "ConnectionGrace": o.ConnectionGrace,
	} {
		if d < 0 {
			return fmt.Errorf("debug: %s must not be negative", name)
		}
	}
	return nil
}

func (o *Options) setDefaults() {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.ConnectionGrace = cmp.Or(o.ConnectionGrace, DefaultConnectionGrace)
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
}
