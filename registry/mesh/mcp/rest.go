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
		return c, nil
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

// serve answers from the listener until ctx ends.
func (l *restListener) serve(ctx context.Context, h http.Handler) error {
	s := &http.Server{Handler: h, ReadTimeout: handshakeWithin, WriteTimeout: readWithin, IdleTimeout: idleFor, MaxHeaderBytes: maxHeaders}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve REST: %w", err)
	}
	return nil
}
