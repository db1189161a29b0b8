package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// dispatching separates REST from gRPC by what a client says first: gRPC begins
// with the preface of HTTP/2.
type dispatching struct {
	credentials.TransportCredentials
	rest *restListener
}

const prefaceStart = "PRI"

// ServerHandshake implements credentials.TransportCredentials. grpc has set a
// deadline for it.
func (d dispatching) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	r := bufio.NewReader(c)
	start, err := r.Peek(len(prefaceStart))
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // grpc knows io.EOF
	}
	read := &readAhead{c, r}
	if string(start) == prefaceStart {
		return d.TransportCredentials.ServerHandshake(read) //nolint:wrapcheck // as if it were that
	}
	return d.rest.dispatch(read)
}

// Clone implements credentials.TransportCredentials.
func (d dispatching) Clone() credentials.TransportCredentials {
	return dispatching{d.TransportCredentials.Clone(), d.rest}
}

// readAhead is a connection of which something was read already.
type readAhead struct {
	net.Conn
	r *bufio.Reader
}

// Read implements net.Conn.
func (c *readAhead) Read(b []byte) (int, error) {
	return c.r.Read(b) //nolint:wrapcheck // as if it were that
}

// restListener is the connections that do not speak gRPC.
type restListener struct {
	conns chan net.Conn
	ended chan struct{}
	at    net.Addr
}

func newRESTListener() *restListener {
	return &restListener{conns: make(chan net.Conn), ended: make(chan struct{})}
}

// dispatch hands a connection over, and returns to grpc that it is not its own.
func (l *restListener) dispatch(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := errors.Join(c.SetDeadline(time.Time{}), l.enqueue(c)); err != nil {
		return nil, nil, err
	}
	return nil, nil, credentials.ErrConnDispatched
}

// enqueue hands a connection over.
func (l *restListener) enqueue(c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.ended:
		return net.ErrClosed
	}
}

// Accept implements net.Listener.
func (l *restListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return &restConn{Conn: c}, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It is called once, by serve.
func (l *restListener) Close() error {
	close(l.ended)
	return nil
}

// Addr implements net.Listener.
func (l *restListener) Addr() net.Addr { return l.at }

// restConn is a connection over REST. From its first answer on it counts as a stream, until
// it ends: a client polls over one that stays.
type restConn struct {
	net.Conn

	stream *stream // nil: it had no answer, or there was no room
}

// restConnKey is the key of the restConn in the context of a request.
type restConnKey struct{}

// serve answers from the listener until ctx ends.
func (l *restListener) serve(ctx context.Context, by *Server) error {
	s := &http.Server{
		Handler:     http.HandlerFunc(by.serveREST),
		ReadTimeout: handshakeWithin, WriteTimeout: readWithin, IdleTimeout: idleFor, MaxHeaderBytes: maxHeaders,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, restConnKey{}, c) },
		ConnState: func(c net.Conn, to http.ConnState) {
			if c, ok := c.(*restConn); ok && to == http.StateClosed && c.stream != nil {
				by.closed(c.stream)
			}
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve REST: %w", err)
	}
	return nil
}

// serveREST answers one request of a data plane over REST.
func (s *Server) serveREST(w http.ResponseWriter, r *http.Request) {
	s.target.o.Observe(Observation{Kind: ObservedREST})
	s.o.DataPlanes.Poll(w, r, func(e dataplane.Event) {
		if c, ok := r.Context().Value(restConnKey{}).(*restConn); ok && s.countPolling(c) {
			c.stream.observe(e)
		}
	})
}

// countPolling has a connection over REST count as a stream, and reports whether there is room.
func (s *Server) countPolling(c *restConn) bool {
	if c.stream != nil {
		return true
	}
	st := s.newStream(c.RemoteAddr())
	st.isReader = true
	if _, ok := s.open(st); !ok {
		return false // it is answered all the same
	}
	c.stream = st
	s.target.o.Observe(Observation{Kind: ObservedOpen})
	return true
}
