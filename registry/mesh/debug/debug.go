// Package debug learns from istiod's debug API which service key lives at
// which host address: it reads what the clients of every istiod replica
// publish in their node metadata, over HTTP or over xDS, and merges it. It
// only ever reads, never has istiod push, and takes nothing for gone that it
// could not see go.
//
// It starts two kinds of goroutines: one that lists the replicas and one for
// each replica that reads it. Run waits for all of them.
package debug

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
)

// The defaults of Options and HTTPOptions.
const (
	DefaultInterval        = 5 * time.Second
	DefaultTimeout         = 10 * time.Second
	DefaultRetryInterval   = 10 * time.Minute
	DefaultGrace           = 10 * time.Second
	DefaultConnectionGrace = 5 * time.Minute // dubbo-go waits up to 2 minutes before it connects again
	DefaultMaxBytes        = 16 << 20
	DefaultPath            = "/debug"
)

// Options say where and how the mapping is read. Zero durations and sizes take
// the defaults above.
type Options struct {
	// Replicas lists every replica of istiod: for HTTP as host or host:port,
	// for xDS as whatever XDSOptions.Dial takes. An error or an empty list
	// keeps the last one. It is called every Interval, with Timeout. See Static,
	// DNS and Endpoints. Required.
	Replicas func(ctx context.Context) ([]string, error)

	HTTP *HTTPOptions // exactly one of the two
	XDS  *XDSOptions

	Interval      time.Duration // between two readings of a replica
	Timeout       time.Duration // of one question to one replica
	RetryInterval time.Duration // after which a client is asked for again that could not be read
	MaxBytes      int64         // of one answer: the list of connections, or what one client is and watches

	// Grace is how long a key stays that a client takes back while it is
	// connected, ConnectionGrace how long the keys of a client stay whose
	// connection went.
	Grace           time.Duration
	ConnectionGrace time.Duration

	// OwnNodes are nodes, as istiod shows them (`pod.namespace`), whose keys are
	// skipped, like those of nodes with the label metadata.MarkKey: what a bridge
	// publishes it must not import.
	OwnNodes []string

	// Bridged takes the keys that bridges publish for what they import, which is
	// what a consumer wants.
	Bridged bool

	// Legacy takes keys in the forms of naming.ParseLegacyServiceKey too.
	Legacy bool

	Log     *slog.Logger      // nil: nothing is logged
	Observe func(Observation) // nil, or called after each question, from several goroutines at once
}

// HTTPOptions say how istiod's debug port is read. The zero value reads
// http://replica:15014/debug and then :8080, without a token, which istiod
// answers to loopback only.
type HTTPOptions struct {
	// Ports are tried in turn, for replicas that are listed without one; none
	// means 15014, which is in istiod's Service, and 8080, which is not.
	Ports []uint16
	Path  string // before /adsz; default /debug

	// TokenFile holds a service account token of audience istio-ca. It is read
	// before each question, so a rotated token needs nothing. Empty: no token.
	TokenFile string
	ClusterID string      // header `clusterid`, for a token of a remote cluster; empty: none
	Insecure  bool        // send the token over plain HTTP to other machines
	TLS       *tls.Config // nil: plain HTTP

	Dial func(ctx context.Context, network, address string) (net.Conn, error) // nil: the net package's
}

// XDSOptions say how istiod is asked over xDS. istiod answers on its TLS port
// alone, and to identities of its root namespace.
type XDSOptions struct {
	// Dial returns the connection to a replica, and what gives it back, which
	// may be nil. It does not wait for the connection to stand. Required.
	Dial func(replica string) (conn grpc.ClientConnInterface, release func(), err error)
	Node *core.Node // sent on each stream, never written. Required.
}

// Observation is what became of one question to one replica.
type Observation struct {
	Replica  string
	Query    string // adsz, connections or client
	Bytes    int64  // of the answer, as far as it was read
	Clients  int    // in the answer
	Duration time.Duration
	Err      error // an *Error, or nil
}

// Reader reads the mapping. Its methods may be called from any goroutine.
type Reader struct {
	o Options
}

// New checks the options and returns a reader that does nothing before Run.
func New(o Options) (*Reader, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.complete()
	return &Reader{o: o}, nil
}

func (o *Options) check() error {
	switch {
	case o.Replicas == nil:
		return errors.New("debug: Replicas is not set")
	case (o.HTTP == nil) == (o.XDS == nil):
		return errors.New("debug: set one of HTTP and XDS")
	case o.XDS != nil && (o.XDS.Dial == nil || o.XDS.Node == nil):
		return errors.New("debug: XDS needs Dial and Node")
	case o.MaxBytes < 0:
		return errors.New("debug: MaxBytes is negative")
	}
	for name, d := range o.durations() {
		if *d.value < 0 {
			return fmt.Errorf("debug: %s is negative", name)
		}
	}
	return nil
}

// complete fills in the defaults.
func (o *Options) complete() {
	if o.HTTP != nil {
		h := *o.HTTP
		if h.Path == "" {
			h.Path = DefaultPath
		}
		if len(h.Ports) == 0 {
			h.Ports = []uint16{15014, 8080}
		}
		o.HTTP = &h
	}
	for _, d := range o.durations() {
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
}

type duration struct {
	value *time.Duration
	or    time.Duration
}

func (o *Options) durations() map[string]duration {
	return map[string]duration{
		"Interval":        {&o.Interval, DefaultInterval},
		"Timeout":         {&o.Timeout, DefaultTimeout},
		"RetryInterval":   {&o.RetryInterval, DefaultRetryInterval},
		"Grace":           {&o.Grace, DefaultGrace},
		"ConnectionGrace": {&o.ConnectionGrace, DefaultConnectionGrace},
	}
}
