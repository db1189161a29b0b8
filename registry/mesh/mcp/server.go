package mcp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/naming"
)

// ServerOptions tune a Server.
type ServerOptions struct {
	Access  Access
	Setting string       // where the configuration has Access, such as registries.mesh.istiod.import.; what it is made of follows
	Log     *slog.Logger // nil: none
}

// A Server answers the istiods that connect to it from one target. It does no
// REST.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	target   *Target
	o        ServerOptions
	gate     *gate
	refusals limiter

	running sync.WaitGroup // what reads and sends

	mu      sync.Mutex
	streams map[*stream]struct{}
	full    bool // a stream was turned away since there was room last
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

// NewServer returns a server of a target.
func NewServer(t *Target, o ServerOptions) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{target: t, o: o, streams: make(map[*stream]struct{}), refusals: limiter{told: make(map[string]time.Time)}}
	s.gate = &gate{access: o.Access, refused: s.turnedAway, stale: s.outdated, open: make(map[netip.Addr]int)}
	return s
}

// Serve answers from a listener until ctx ends, and then ends every stream.
// It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	const mayPing = 5 * time.Second // istiod pings every 30 s, and grpc's default of 5 min would end its connection
	const idleFor = 5 * time.Minute // a connection that asks for nothing
	g := grpc.NewServer(
		grpc.Creds(s.gate.credentials()), grpc.ConnectionTimeout(handshakeWithin),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: mayPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: idleFor}),
		grpc.MaxConcurrentStreams(maxStreams), grpc.WaitForHandlers(true),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(g, s)
	defer s.running.Wait()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		g.Stop()
	}()
	if err := g.Serve(gated{l, s.gate}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	<-ended // Serve returns without an error only after Stop
	return nil
}

// StreamAggregatedResources implements the state of the world, which istiod
// speaks.
func (s *Server) StreamAggregatedResources(st discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(st.Context(), world{st, s.target})
}

// DeltaAggregatedResources implements the incremental form.
func (s *Server) DeltaAggregatedResources(st discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(st.Context(), differences{st, s.target})
}

// serve answers one stream.
func (s *Server) serve(ctx context.Context, f form) error {
	st := &stream{server: s, form: f, peer: Peer{Since: time.Now()}}
	if p, ok := peer.FromContext(ctx); ok {
		st.peer.Address = p.Addr.String()
	}
	if err := s.open(st); err != nil {
		return err
	}
	defer s.closed(st)
	return st.session(ctx)
}

// Peers returns the istiods that are connected, the longest first.
func (s *Server) Peers() []Peer {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	out := make([]Peer, 0, len(all))
	for _, st := range all {
		out = append(out, st.shown())
	}
	slices.SortFunc(out, func(a, b Peer) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Address, b.Address)) })
	return out
}

// open takes in a stream, as far as there is room for another.
func (s *Server) open(st *stream) error {
	s.mu.Lock()
	room, told := len(s.streams) < maxStreams, s.full
	if s.full = !room; room {
		s.streams[st] = struct{}{}
	}
	s.mu.Unlock()
	if !room {
		if !told {
			s.o.Log.Warn("a stream was turned away: too many are open", "address", st.peer.Address, "most", maxStreams)
		}
		return status.Errorf(codes.ResourceExhausted, "%d streams are open, which is the most", maxStreams)
	}
	s.target.o.Observe(Observation{Kind: ObservedOpen})
	return nil
}

func (s *Server) closed(st *stream) {
	s.mu.Lock()
	delete(s.streams, st)
	s.mu.Unlock()
	s.target.o.Observe(Observation{Kind: ObservedClosed})
	if p := st.shown(); p.Node != "" {
		s.o.Log.Info("istiod disconnected", "node", naming.Quote(p.Node), "address", p.Address)
	}
}
