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

// isDataPlane reports whether a type is one that data planes request, and istiod never
// does.
func isDataPlane(typeURL string) bool {
	return strings.HasPrefix(typeURL, "type.googleapis.com/envoy.")
}

// updateDataPlanes passes each served set to Options.DataPlanes until ctx ends.
func (s *Server) updateDataPlanes(ctx context.Context) {
	var last *servedSnapshot
	for {
		set, changed := s.target.currentSnapshot()
		if set != last {
			put, remove := set.changesSince(last)
			s.o.DataPlanes.Update(s.decodeEntries(put), remove)
			last = set
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// decodeEntries decodes resources for data planes. It logs and leaves out those that
// cannot be decoded.
func (s *Server) decodeEntries(resources []*wireResource) (entries []dataplane.Entry) {
	for _, r := range resources {
		e, err := dataplane.Decode(r.wire)
		if err != nil { // unexpected: the target encoded it
			s.o.Log.Error("entry not served to data planes", "entry", naming.Quote(r.name), "err", err)
			continue
		}
		entries = append(entries, e)
	}
	return entries
}

// serveDataPlane serves a data plane until ctx ends, its stream fails or it is refused.
func (st *clientStream) serveDataPlane(ctx context.Context) error {
	st.server.markReader(st)
	err := st.variant.serve(ctx, st.server.o.DataPlanes, st.observeDataPlane)
	if code := status.Code(err); code == codes.InvalidArgument || code == codes.ResourceExhausted {
		return st.refuse(RefusedRequest, code, errors.New(status.Convert(err).Message()))
	}
	return err
}

// observeDataPlane records an event of a data plane's stream in its Reader, and logs
// connections and rejections.
func (st *clientStream) observeDataPlane(e dataplane.Event) {
	st.updateReader(func(r *Reader) {
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
			r.Refused, r.refusedType = rejectedResponse(e), e.TypeURL
		}
	})
	if e.Kind == dataplane.EventNack {
		st.server.target.o.Observe(Observation{Kind: ObservedNack})
		if st.server.refusals.allow("nack "+e.TypeURL+" "+st.from.String(), time.Now()) {
			st.server.o.Log.Warn("data plane rejected a response", "node", naming.Quote(e.Node), "refused", rejectedResponse(e))
		}
	}
}

// rejectedResponse returns the type that a client rejected, and the client's reason.
func rejectedResponse(e dataplane.Event) string {
	typeURL := strings.Trim(strconv.QuoteToASCII(strings.TrimPrefix(e.TypeURL, "type.googleapis.com/")), `"`)
	return typeURL + ": " + strconv.QuoteToASCII(e.Message[:min(len(e.Message), maxClientText)])
}

// prefaceStart begins the preface of HTTP/2, and so every gRPC connection.
const prefaceStart = "PRI"

// sniff reports whether a plaintext connection speaks REST, and returns a connection
// that reads the sniffed bytes again. grpc has set a deadline on the connection.
func sniff(c net.Conn) (read net.Conn, isREST bool, err error) {
	r := bufio.NewReader(c)
	start, err := r.Peek(len(prefaceStart))
	return &readAhead{c, r}, string(start) != prefaceStart, err
}

// readAhead is a connection whose first bytes were already read, into r.
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
	conns  chan net.Conn
	closed chan struct{}
	addr   net.Addr
}

func newRESTListener(at net.Addr) *restListener {
	return &restListener{conns: make(chan net.Conn), closed: make(chan struct{}), addr: at}
}

// dispatch hands a connection to Accept. On success it returns
// credentials.ErrConnDispatched, so that grpc leaves the connection alone.
func (l *restListener) dispatch(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	select {
	case l.conns <- c:
		return nil, nil, credentials.ErrConnDispatched
	case <-l.closed:
		return nil, nil, net.ErrClosed
	}
}

// Accept implements net.Listener.
func (l *restListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return &restConn{Conn: c}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It is called once, by serve.
func (l *restListener) Close() error {
	close(l.closed)
	return nil
}

// Addr implements net.Listener.
func (l *restListener) Addr() net.Addr { return l.addr }

// A restConn is a connection that speaks REST. A client polls over one connection, which
// counts as a stream from its first response until it is closed.
type restConn struct {
	net.Conn

	stream *clientStream // nil before the first response, or if too many streams are open
}

// restConnKey is the key of the restConn in the context of a request.
type restConnKey struct{}

func (l *restListener) serve(ctx context.Context, by *Server) error {
	s := &http.Server{
		Handler:     http.HandlerFunc(by.serveREST),
		ReadTimeout: handshakeWithin, WriteTimeout: readResponseWithin, IdleTimeout: idleFor, MaxHeaderBytes: maxHeaders,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, restConnKey{}, c)
		},
		ConnState: func(c net.Conn, to http.ConnState) {
			if c, ok := c.(*restConn); ok && to == http.StateClosed && c.stream != nil {
				by.streamClosed(c.stream)
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
			c.stream.observeDataPlane(e)
		}
	})
}

// countPolling counts a REST connection as a stream. It returns false if too many
// streams are open.
func (s *Server) countPolling(c *restConn) bool {
	if c.stream != nil {
		return true
	}
	st := s.newStream(c.RemoteAddr())
	st.isReader = true
	if _, ok := s.addStream(st); !ok {
		return false // its requests are answered anyway
	}
	c.stream = st
	s.target.o.Observe(Observation{Kind: ObservedOpen})
	return true
}
