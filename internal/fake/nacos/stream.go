package nacos

import (
	"context"
	"strconv"
	"sync"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"google.golang.org/grpc/stats"
)

type connection struct {
	stream     nacosgrpc.BiRequestStream_RequestBiStreamServer
	subscribed map[Service]bool
	end        chan struct{} // closed to end the stream
	ended      bool
	send       sync.Mutex
	sent       <-chan struct{} // closed when the last push has been sent; guarded by the server's mu
}

func (c *connection) finish() {
	c.send.Lock()
	defer c.send.Unlock()
	if !c.ended {
		c.ended = true
		close(c.end)
	}
}

// Connections returns the number of connected clients.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// tagger names each transport, so that the server knows which requests and which stream belong to
// one client, as a real server does.
type tagger struct{ s *Server }

type connKey struct{}

func (t tagger) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	id := "conn-" + strconv.FormatInt(t.s.next.Add(1), 10)
	return context.WithValue(ctx, connKey{}, id)
}

func (t tagger) HandleConn(ctx context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnEnd); ok {
		t.s.gone(connOf(ctx))
	}
}

func (tagger) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (tagger) HandleRPC(context.Context, stats.RPCStats) {}

func connOf(ctx context.Context) string {
	id, _ := ctx.Value(connKey{}).(string)
	return id
}

// RequestBiStream implements the streaming half of the protocol.
func (s *Server) RequestBiStream(stream nacosgrpc.BiRequestStream_RequestBiStreamServer) error {
	first, err := stream.Recv()
	if err != nil || first.GetMetadata().GetType() != "ConnectionSetupRequest" {
		return err
	}
	id := connOf(stream.Context())
	c := &connection{stream: stream, subscribed: make(map[Service]bool), end: make(chan struct{})}
	s.mu.Lock()
	s.conns[id] = c
	s.mu.Unlock()
	go func() { // ends with the stream
		for {
			p, err := stream.Recv()
			if err != nil {
				c.finish()
				return
			}
			s.mu.Lock()
			s.log = append(s.log, Request{Type: p.GetMetadata().GetType(), Conn: id, Body: p.GetBody().GetValue()})
			s.mu.Unlock()
		}
	}()
	<-c.end
	s.gone(id)
	return nil
}

// gone removes a connection and its publications.
func (s *Server) gone(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, id)
	for sv, by := range s.services {
		if _, held := by[id]; held {
			s.publish(sv, id, nil)
		}
	}
}

func (c *connection) push(kind string, b any) {
	c.send.Lock()
	defer c.send.Unlock()
	if !c.ended {
		_ = c.stream.Send(payload(kind, b)) // a broken stream ends on its own
	}
}
