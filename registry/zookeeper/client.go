package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// Options tune a Client. Only Servers is required.
type Options struct {
	// Servers are host:port, or host for port 2181. A chroot may follow the last one, as
	// in host:2181/app.
	Servers []string

	SessionTimeout time.Duration // requested from the server; 0: 30 s
	Timeout        time.Duration // of one call, including the wait for a session; 0: 10 s
	DialTimeout    time.Duration // of a connection and of the answer to its first packet; 0: 5 s
	ReceiveLimit   int           // of an answer, in bytes; 0: 32 MiB

	TLS          func() (*tls.Config, error) // called for every connection; nil: plaintext
	User         string                      // of digest authentication, with PasswordFile; empty: none
	PasswordFile string                      // read again for every connection
	Log          *slog.Logger                // nil: none

	// Dial replaces the dialer of the network; nil: it does not.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Observe is called with every change of the state. It must not block; it may be nil.
	Observe func(State)
}

// Client is a connection to a ZooKeeper ensemble that reconnects. Every call has a
// context. A call without a session waits for one. It is safe for concurrent use.
type Client struct {
	*session

	// For the targets of the client, of which one at a time writes.
	replaced <-chan struct{} // ready after another session replaced the last one
	watches  *groupWatches
}

// Dial returns a client that connects in the background and continues trying. It fails
// if the options cannot be used: no server, or a file that cannot be read.
func Dial(opts Options) (*Client, error) { return dial(opts, nil) }

func dial(opts Options, single *singleConnection) (*Client, error) {
	s, err := newSession(opts, single)
	if err != nil {
		return nil, err
	}
	c := &Client{session: s}
	c.replaced, _ = s.onLost()
	c.watches = newGroupWatches(c)
	if err := s.connect(); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the session and waits for everything that the client started. Calls in
// flight fail.
func (c *Client) Close() { c.close(c.watches.close) }

func (o Options) withDefaults() Options {
	defaultTo(&o.SessionTimeout, 30*time.Second)
	defaultTo(&o.Timeout, 10*time.Second)
	defaultTo(&o.DialTimeout, 5*time.Second)
	defaultTo(&o.ReceiveLimit, 32<<20)
	defaultTo(&o.Log, slog.New(slog.DiscardHandler))
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Observe == nil {
		o.Observe = func(State) {}
	}
	return o
}

func defaultTo[T comparable](v *T, to T) { *v = cmp.Or(*v, to) }
