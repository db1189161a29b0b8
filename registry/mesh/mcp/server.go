package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// ServerOptions tune a Server.
type ServerOptions struct {
	Access Access

	// DataPlanes answers those that ask for what data planes do; nil: nobody
	// does. They are sent what the target serves.
	DataPlanes *dataplane.Server

	Setting string       // where the configuration has Access, such as registries.mesh.istiod.import.; what it is made of follows
	Log     *slog.Logger // nil: none
}

// A Server answers the istiods, and data planes, that connect to it from one
// target.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	target   *Target
	o        ServerOptions
	gate     *gate
	refusals limiter

	running sync.WaitGroup // what reads and sends

	mu         sync.Mutex
	streams    []*stream // that are open, the oldest first
	departed   Reader    // the last that read and is gone
	departedAt time.Time
}

// Reader is an istiod that is connected, or a data plane.
type Reader struct {
	Node    string    `json:"node"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Types   int       `json:"types"` // that it asked for
	Sent    string    `json:"sent"`  // version of the ServiceEntries it was sent last
	Acked   string    `json:"acked"` // and of those it confirmed

	DataPlane   bool   `json:"dataPlane,omitempty"` // Sent and Acked are then of any type
	Refused     string `json:"refused,omitempty"`   // type and reason of what a data plane refused last and confirmed none of since
	refusedType string
}

// NewServer returns a server of a target.
func NewServer(t *Target, o ServerOptions) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{target: t, o: o, refusals: limiter{lastLogged: make(map[string]time.Time)}}
	s.gate = &gate{access: o.Access, most: 8 * s.most(), refused: s.clientRefused, stale: s.outdated, open: make(map[netip.Addr]int)}
	return s
}

// Serve answers from a listener until ctx ends, and then ends every stream.
// It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	const mayPing = 5 * time.Second // istiod pings every 30 s, and grpc's default of 5 min would end its connection
	largest := maxMessage
	if s.o.DataPlanes != nil {
		largest = maxDataPlaneMessage
		s.running.Go(func() { s.updateDataPlanes(ctx) })
		s.gate.rest = newRESTListener()
		s.gate.rest.at = l.Addr()
		s.running.Go(func() {
			if err := s.gate.rest.serve(ctx, s); err != nil {
				s.o.Log.Error("REST ended", "err", err)
			}
		})
	}
	g := grpc.NewServer(
		grpc.Creds(s.gate.credentials()), grpc.ConnectionTimeout(handshakeWithin),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: mayPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: idleFor}),
		grpc.MaxConcurrentStreams(maxStreamsOnOne), grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(largest), grpc.MaxHeaderListSize(maxHeaders), grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
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
	return s.serve(st.Context(), &sotw{newGRPCStream(st)})
}

// DeltaAggregatedResources implements the incremental variant.
func (s *Server) DeltaAggregatedResources(st discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(st.Context(), &delta{newGRPCStream(st)})
}

// serve answers one stream.
func (s *Server) serve(ctx context.Context, v variant) error {
	var from net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr
	}
	st := s.newStream(from)
	st.variant = v
	if most, ok := s.open(st); !ok {
		return st.refuse(RefusedStreams, codes.ResourceExhausted, fmt.Errorf("%d streams are open, which is the most", most))
	}
	s.target.o.Observe(Observation{Kind: ObservedOpen})
	defer s.closed(st)
	if s.o.DataPlanes == nil {
		return st.session(ctx)
	}
	isDataPlane, err := st.askedByDataPlane(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	case isDataPlane:
		return st.serveDataPlane(ctx)
	}
	return st.session(ctx)
}

// newStream returns a stream from an address, nil where it is not known.
func (s *Server) newStream(from net.Addr) *stream {
	st := &stream{server: s, reader: Reader{Since: time.Now()}, replaced: make(chan struct{})}
	if from != nil {
		st.reader.Address, st.from = from.String(), addressOf(from)
	}
	return st
}

// Readers returns the istiods and data planes that are connected, the longest first.
func (s *Server) Readers() []Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Reader, len(s.streams))
	for i, st := range s.streams {
		out[i] = st.shown()
	}
	return out
}

// Departed returns the last reader that is gone, and since when; the zero time if
// there never was one.
func (s *Server) Departed() (Reader, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed, s.departedAt
}

// open takes in a stream, or returns how many are open where there is no room.
func (s *Server) open(st *stream) (most int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := func(o *stream) bool { return o.from != st.from }
	most = s.most()
	if !s.room(slices.DeleteFunc(slices.Clone(s.streams), others), most/2) {
		return most / 2, false
	}
	if !s.room(s.streams, most) {
		return most, false
	}
	s.streams = append(s.streams, st)
	return 0, true
}

// room reports whether there is room for one more stream. If there is none, the
// oldest that never asked for the type that is served ends: that is no istiod.
// The caller holds mu.
func (s *Server) room(among []*stream, most int) bool {
	if len(among) < most {
		return true
	}
	i := slices.IndexFunc(among, func(st *stream) bool { return !st.isReader })
	if i < 0 {
		return false
	}
	close(among[i].replaced)
	s.remove(among[i])
	return true
}

// most is how many streams may be open. One address may have half of them, so
// that it leaves room for others.
func (s *Server) most() int {
	if s.o.DataPlanes != nil {
		return maxDataPlanes
	}
	return maxStreams
}

// remove forgets a stream. The caller holds mu.
func (s *Server) remove(st *stream) {
	s.streams = slices.DeleteFunc(s.streams, func(o *stream) bool { return o == st })
}

// markReading notes that a stream asked for the type that is served.
func (s *Server) markReading(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.isReader = true
}

func (s *Server) closed(st *stream) {
	s.mu.Lock()
	s.remove(st)
	if st.isReader {
		s.departed, s.departedAt = st.shown(), time.Now()
	}
	s.mu.Unlock()
	s.target.o.Observe(Observation{Kind: ObservedClosed})
	switch p := st.shown(); {
	case p.DataPlane:
		s.o.Log.Info("data plane disconnected", "node", naming.Quote(p.Node), "address", p.Address)
	case p.Node != "":
		s.o.Log.Info("istiod disconnected", "node", naming.Quote(p.Node), "address", p.Address)
	}
}

// Where there is neither TLS nor a list of networks nobody vouches for a client.
// So everything that one takes is bounded here, in number, in time and in bytes.
const (
	// handshakeWithin is how long a client may take to show who it is.
	handshakeWithin = 10 * time.Second

	// idleFor is how long a connection may be without a stream.
	idleFor = 5 * time.Minute

	// maxStreams is more istiods than any mesh has. Each may have one answer
	// in memory that it does not read.
	maxStreams = 100

	// maxDataPlanes is how many streams there may be where data planes are
	// served too. Each costs some kilobytes, and what it does not read.
	maxDataPlanes = 10_000

	// maxStreamsOnOne is how many one connection may have. An istiod has one;
	// a proxy that carries several istiods opens another connection.
	maxStreamsOnOne = 10

	// askWithin is how long a stream may ask for nothing. istiod asks at once.
	askWithin = 5 * time.Second

	// readWithin is how long a client may take to read one answer: 100,000
	// endpoints are ten megabytes.
	readWithin = time.Minute

	// maxTypes is more types than any istiod asks for, about twenty. Each is
	// kept for as long as the stream lives.
	maxTypes = 100
)

// In bytes.
const (
	// maxMessage bounds what is read of a request before it is looked at. It
	// is several times what its parts may have.
	maxMessage = 1 << 20

	// maxDataPlaneMessage fits the names of 50,000 clusters, which an Envoy
	// sends with each request in the state of the world.
	maxDataPlaneMessage = 4 << 20

	// maxHeaders bounds what grpc keeps of a stream; a token fits in it.
	maxHeaders = 16 << 10

	// window is what grpc takes from a connection that nobody read yet; by
	// itself it lets that grow to 16 MiB.
	window = 64 << 10

	// maxTypeURL is six times the longest type of Istio's.
	maxTypeURL = 300

	// maxNode is several times the node of an istiod, of which labels are most.
	maxNode = 64 << 10

	// maxKnownBytes is for what a client says it has, which istiod does not say. It is
	// kept until the first answer: about 7,000 hosts.
	maxKnownBytes = 1 << 20
	knownCost     = 64 // what a map takes for one beside its text
)
