package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// isDataPlane reports whether data planes ask for a type, and istiod does not.
func isDataPlane(typeURL string) bool {
	return strings.HasPrefix(typeURL, "type.googleapis.com/envoy.")
}

// updateDataPlanes sends data planes what is served, until ctx ends.
func (s *Server) updateDataPlanes(ctx context.Context) {
	var last *servedSnapshot
	for {
		set, changed := s.target.current()
		if set != last {
			put, remove := set.since(last)
			s.o.DataPlanes.Update(s.decode(put), remove)
			last = set
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (s *Server) decode(resources []*wireResource) (entries []dataplane.Entry) {
	for _, r := range resources {
		e, err := dataplane.Decode(r.wire)
		if err != nil { // we encoded it
			s.o.Log.Error("an entry is not served to data planes", "entry", naming.Quote(r.name), "err", err)
			continue
		}
		entries = append(entries, e)
	}
	return entries
}

// serveDataPlane answers a data plane until ctx ends or it is refused.
func (st *clientStream) serveDataPlane(ctx context.Context) error {
	st.server.markReading(st)
	err := st.variant.serve(ctx, st.server.o.DataPlanes, st.observe)
	if code := status.Code(err); code == codes.InvalidArgument || code == codes.ResourceExhausted {
		return st.refuse(RefusedRequest, code, errors.New(status.Convert(err).Message()))
	}
	return err
}

// observe records an event of the stream of a data plane.
func (st *clientStream) observe(e dataplane.Event) {
	st.show(func(r *Reader) {
		if r.Node == "" {
			st.server.o.Log.Info("data plane connected", "node", naming.Quote(e.Node), "address", r.Address)
		}
		r.Node, r.DataPlane = e.Node, true
		switch e.Kind {
		case dataplane.EventSubscribed:
			r.Types++
		case dataplane.EventSent:
			r.Sent = e.Version
		case dataplane.EventAck:
			r.Acked = e.Version
			if r.refusedType == e.TypeURL {
				r.Refused, r.refusedType = "", ""
			}
		case dataplane.EventNack:
			r.Refused, r.refusedType = refusedAnswer(e), e.TypeURL
		}
	})
	if e.Kind == dataplane.EventNack {
		st.server.target.o.Observe(Observation{Kind: ObservedNack})
		if st.server.refusals.due("nack "+e.TypeURL+" "+st.from.String(), time.Now()) {
			st.server.o.Log.Warn("data plane refused an answer", "node", naming.Quote(e.Node), "refused", refusedAnswer(e))
		}
	}
}

// refusedAnswer returns which type was refused and the client's reason.
func refusedAnswer(e dataplane.Event) string {
	return strings.Trim(strconv.QuoteToASCII(strings.TrimPrefix(e.TypeURL, "type.googleapis.com/")), `"`) + ": " + strconv.QuoteToASCII(e.Message[:min(len(e.Message), maxClientText)])
}

// prefaceStart begins the preface of HTTP/2, and so each connection of gRPC.
const prefaceStart = "PRI"

// sniff reports whether a connection speaks REST. grpc sets a deadline for it.
func sniff(c net.Conn) (read net.Conn, isREST bool, err error) {
	r := bufio.NewReader(c)
	start, err := r.Peek(len(prefaceStart))
	return &readAhead{c, r}, string(start) != prefaceStart, err
}

// readAhead is a connection whose first bytes were read already.
type readAhead struct {
	net.Conn
	r *bufio.Reader
}

// Read implements net.Conn.
func (c *readAhead) Read(b []byte) (int, error) {
	return c.r.Read(b)
}

// A restListener accepts the connections that do not speak gRPC.
type restListener struct {
	conns chan net.Conn
	ended chan struct{}
	at    net.Addr
}

func newRESTListener(at net.Addr) *restListener {
	return &restListener{conns: make(chan net.Conn), ended: make(chan struct{}), at: at}
}

// dispatch has a connection accepted, and returns an error by which grpc ignores it.
func (l *restListener) dispatch(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	select {
	case l.conns <- c:
		return nil, nil, credentials.ErrConnDispatched
	case <-l.ended:
		return nil, nil, net.ErrClosed
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

// A restConn is a connection over REST. It counts as a stream from its first answer
// until it ends: clients poll over one connection.
type restConn struct {
	net.Conn

	stream *clientStream // nil: there was no answer yet, or no room
}

// restConnKey is the key of the restConn in the context of a request.
type restConnKey struct{}

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

func (s *Server) serveREST(w http.ResponseWriter, r *http.Request) {
	s.target.o.Observe(Observation{Kind: ObservedREST})
	s.o.DataPlanes.Poll(w, r, func(e dataplane.Event) {
		if c, ok := r.Context().Value(restConnKey{}).(*restConn); ok && s.countPolling(c) {
			c.stream.observe(e)
		}
	})
}

// countPolling counts a connection over REST as a stream, false if there is no room.
func (s *Server) countPolling(c *restConn) bool {
	if c.stream != nil {
		return true
	}
	st := s.newStream(c.RemoteAddr())
	st.isReader = true
	if _, ok := s.open(st); !ok {
		return false // it is answered anyway
	}
	c.stream = st
	s.target.o.Observe(Observation{Kind: ObservedOpen})
	return true
}
