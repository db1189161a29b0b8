package nacos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Options say which servers to speak to and how.
type Options struct {
	Servers   []string // base URLs such as http://127.0.0.1:8848/nacos; the path is /nacos where none is given
	Namespace string   // of the connection; empty is public

	Username    string                      // empty: no login
	Password    func() (string, error)      // read anew at every login
	TLS         func() (*tls.Config, error) // called for every connection; nil: plaintext
	GRPCOffset  int                         // from the HTTP to the gRPC port; 0 is 1000
	Timeout     time.Duration               // of one request; 0 is 5 s
	Health      time.Duration               // between health checks; 0 is 5 s
	Overlap     time.Duration               // how long a connection that the server wants gone outlives its successor; 0 is 10 s
	MaxInFlight int                         // requests at a time; 0 is 64
	MaxReceive  int                         // bytes of one message; 0 is 64 MiB
	Backoff     registry.Backoff            // between attempts to connect; 0 is 500 ms to 5 s
	Log         *slog.Logger                // nil: none
	Observe     func(Observation)           // reported every request and connection; may be nil

	// Dialer opens the connections; nil dials TCP.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

// Observation is one thing a Client did, for metrics.
type Observation struct {
	Op    string // a request type or one of the constants
	Took  time.Duration
	Sent  int  // bytes
	Got   int  // bytes
	Again bool // OpConnect: not for the first time
	Err   error
}

// What a Client does beside requests.
const (
	OpConnect = "connect"
	OpLost    = "lost"
	OpLogin   = "login"
)

func (o Options) withDefaults() Options {
	set(&o.GRPCOffset, 1000)
	set(&o.Timeout, 5*time.Second)
	set(&o.Health, 5*time.Second)
	set(&o.Overlap, 10*time.Second)
	set(&o.MaxInFlight, 64)
	set(&o.MaxReceive, 64<<20)
	set(&o.Backoff.Min, 500*time.Millisecond)
	set(&o.Backoff.Max, 5*time.Second) // what a server forgot at its restart has to be back within 10 s of it
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dialer == nil {
		o.Dialer = new(net.Dialer).DialContext
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	return o
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// A server is one address of the configuration, in the two forms it is needed.
type server struct {
	base string // http://host:port/nacos
	grpc string // host:port
}

func parseServers(o Options) ([]server, error) {
	if len(o.Servers) == 0 {
		return nil, errors.New("servers: none given")
	}
	out := make([]server, 0, len(o.Servers))
	for _, s := range o.Servers {
		parsed, err := parseServer(s, o.GRPCOffset)
		if err != nil {
			return nil, fmt.Errorf("servers: %q: %w", s, err)
		}
		out = append(out, parsed)
	}
	return out, nil
}

func parseServer(s string, offset int) (server, error) {
	u, err := url.Parse(s)
	if err != nil {
		return server{}, fmt.Errorf("not a URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return server{}, errors.New("want http://host:port or https://host:port")
	}
	port := u.Port()
	if port == "" {
		port = "8848"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || int(n)+offset > 65535 {
		return server{}, fmt.Errorf("port %s is out of range", port)
	}
	path := u.Path
	if path == "" || path == "/" {
		path = "/nacos"
	}
	return server{
		base: u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port) + path,
		grpc: net.JoinHostPort(u.Hostname(), strconv.Itoa(int(n)+offset)),
	}, nil
}
