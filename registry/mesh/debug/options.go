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

// Options say from where and how the mapping is read. Zero durations and sizes are
// the defaults above.
type Options struct {
	// Replicas lists every replica of istiod: for HTTP as host or host:port, for xDS
	// as the argument of XDSOptions.Dial. After an error or an empty list the last
	// list is kept. See Static, DNS and Endpoints. Required.
	Replicas Lister

	HTTP *HTTPOptions // exactly one of the two
	XDS  *XDSOptions

	Interval time.Duration // between two readings of a replica
	Timeout  time.Duration // of one request to one replica
	MaxBytes int64         // of one response: the list of connections, or one client

	Grace           time.Duration // how long a key is kept that a connected client withdraws
	ConnectionGrace time.Duration // how long the keys of a client are kept whose connection ended

	// OwnNodes are nodes, as istiod shows them (`pod.namespace`), whose keys are
	// skipped, like those of nodes with the label metadata.MarkKey: a bridge must not
	// import what a bridge publishes.
	OwnNodes []string
	Bridged  bool // read the keys that bridges publish too, which is what a consumer wants
	Legacy   bool // read keys in the forms of naming.ParseLegacyServiceKey too

	Log     *slog.Logger      // nil: nothing is logged
	Observe func(Observation) // nil, or called after each request, concurrently
}

// HTTPOptions say how istiod's debug port is read: at http://replica/debug by
// MonitoringPort and then 8080, unless the replica has a port. Without a token istiod
// allows it to loopback only.
type HTTPOptions struct {
	TokenFile string // a service account token of audience istio-ca, read before each request; empty: none
	ClusterID string // header `clusterid`, for a token of a remote cluster; empty: none
	Insecure  bool   // send the token over plain HTTP to other machines

	Dial func(ctx context.Context, network, address string) (net.Conn, error) // nil: the net package's
}

// XDSOptions say how istiod is read over xDS. istiod answers on its TLS port alone,
// and to identities of its root namespace.
type XDSOptions struct {
	// Dial returns the connection to a replica, and what releases it, which may be
	// nil. It does not wait until the connection is established. Required.
	Dial func(replica string) (conn grpc.ClientConnInterface, release func(), err error)
	Node *core.Node // sent on each stream, never written. Required.
}

// Observation is the result of one request to one replica.
type Observation struct {
	Replica  string
	Query    string // adsz, connections or client
	Bytes    int64  // of the response, as far as it was read
	Clients  int    // in the response
	Duration time.Duration
	Err      error // an *Error, or nil
}

func (o *Options) check() error {
	switch {
	case o.Replicas == nil:
		return errors.New("debug: Replicas is not set")
	case (o.HTTP == nil) == (o.XDS == nil):
		return errors.New("debug: set one of HTTP and XDS")
	case o.XDS != nil && (o.XDS.Dial == nil || o.XDS.Node == nil):
		return errors.New("debug: XDS requires Dial and Node")
	case o.MaxBytes < 0:
		return errors.New("debug: MaxBytes is negative")
	}
	for name, d := range map[string]time.Duration{
		"Interval": o.Interval, "Timeout": o.Timeout,
		"Grace": o.Grace, "ConnectionGrace": o.ConnectionGrace,
	} {
		if d < 0 {
			return fmt.Errorf("debug: %s is negative", name)
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
