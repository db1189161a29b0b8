package mcp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ServerOptions tune a Server.
type ServerOptions struct {
	Credentials credentials.TransportCredentials // nil: plaintext, all that istiod before 1.26 can speak
	Log         *slog.Logger                     // nil: none
}

// A Server answers the istiods that connect to it from one target.
type Server struct {
	target *Target
	o      ServerOptions

	mu      sync.Mutex
	streams map[int64]*stream
}

// Peer is an istiod that is connected.
type Peer struct {
	Node    string    `json:"node"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Types   int       `json:"types"` // that it asked for
	Sent    string    `json:"sent"`  // version of the ServiceEntries it was sent last
	Acked   string    `json:"acked"` // and of those it confirmed
}

type stream struct {
	Peer
	types   map[string]bool
	refused bool // an answer
}

// maxTypes is more types than any istiod asks for, about twenty. Each is kept
// for as long as the stream lives.
const maxTypes = 100

// NewServer returns a server of a target.
func NewServer(t *Target, o ServerOptions) *Server {
	if o.Credentials == nil {
		o.Credentials = insecure.NewCredentials()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{target: t, o: o, streams: make(map[int64]*stream)}
}

// Serve answers from a listener until ctx ends, and then ends every stream.
// It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	const mayPing = 5 * time.Second // istiod pings every 30 s, and grpc's default of 5 min would end its connection
	g := grpc.NewServer(
		grpc.Creds(s.o.Credentials),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: mayPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.MaxConcurrentStreams(1000),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(g, streams{
		sotw: sotw.NewServer(ctx, s.target, s), delta: delta.NewServer(ctx, s.target, s),
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		g.Stop()
	}()
	if err := g.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	<-ended // Serve returns without an error only after Stop
	return nil
}

// streams are the two forms of the protocol; REST is not served.
type streams struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	sotw  sotw.Server
	delta delta.Server
}

// StreamAggregatedResources implements the state of the world, which istiod
// speaks.
func (s streams) StreamAggregatedResources(st discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.sotw.StreamHandler(st, resourcev3.AnyType) //nolint:wrapcheck // a status of grpc
}

// DeltaAggregatedResources implements the incremental form.
func (s streams) DeltaAggregatedResources(st discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.delta.DeltaStreamHandler(st, resourcev3.AnyType) //nolint:wrapcheck // a status of grpc
}

// Peers returns the istiods that are connected, the longest first.
func (s *Server) Peers() []Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Peer, 0, len(s.streams))
	for _, st := range s.streams {
		out = append(out, st.Peer)
	}
	slices.SortFunc(out, func(a, b Peer) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Address, b.Address)) })
	return out
}

func (s *Server) open(ctx context.Context, id int64) {
	st := &stream{Peer: Peer{Since: time.Now()}, types: make(map[string]bool)}
	if p, ok := peer.FromContext(ctx); ok {
		st.Address = p.Addr.String()
	}
	s.mu.Lock()
	s.streams[id] = st
	s.mu.Unlock()
	s.target.o.Observe(Observation{Kind: ObservedOpen})
}

func (s *Server) closed(id int64) {
	s.mu.Lock()
	st := s.streams[id]
	delete(s.streams, id)
	s.mu.Unlock()
	s.target.o.Observe(Observation{Kind: ObservedClosed})
	if st != nil && st.Node != "" {
		s.o.Log.Info("istiod disconnected", "node", st.Node, "address", st.Address)
	}
}

// asked notes a request of a stream, with the version of the ServiceEntries
// that it confirms. An error ends the stream.
func (s *Server) asked(id int64, node *corev3.Node, typeURL, acked string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[id]
	if st == nil {
		return nil
	}
	if !st.types[typeURL] && len(st.types) >= maxTypes {
		return status.Errorf(codes.ResourceExhausted, "a stream may ask for %d types", maxTypes)
	}
	if st.Node == "" && node.GetId() != "" {
		st.Node = node.GetId()
		s.o.Log.Info("istiod connected", "node", st.Node, "address", st.Address)
	}
	st.types[typeURL] = true
	st.Types = len(st.types)
	if ours(typeURL) && acked != "" {
		st.Acked = acked
	}
	return nil
}

func (s *Server) sent(id int64, typeURL, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[id]; st != nil && ours(typeURL) {
		st.Sent = version
	}
}
