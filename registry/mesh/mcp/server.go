package mcp

import (
	"context"
	"fmt"
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

	// DataPlanes answers data planes, with what the target serves; nil: they are
	// not served.
	DataPlanes *dataplane.Server

	Setting string       // prefix of the settings of Access, such as registries.mesh.istiod.import.
	Log     *slog.Logger // nil: none
}

// A Server answers istiods and data planes, from one target.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	target   *Target
	o        ServerOptions
	gate     *gate
	refusals logLimiter

	running sync.WaitGroup // of the goroutines that read and send

	mu         sync.Mutex
	streams    []*clientStream // the oldest first
	departed   Reader          // that left last
	departedAt time.Time
}

// A Reader is a connected istiod or data plane.
type Reader struct {
	Node    string    `json:"node"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Types   int       `json:"types"` // that it asked for
	Sent    string    `json:"sent"`  // version of the ServiceEntries that it was sent last
	Acked   string    `json:"acked"` // version of those that it confirmed last

	DataPlane   bool   `json:"dataPlane,omitempty"` // Sent and Acked are then of any type
	Refused     string `json:"refused,omitempty"`   // type and reason of the last refusal of a data plane, until it confirms an answer of that type
	refusedType string
}

// NewServer returns a server of a target.
func NewServer(t *Target, o ServerOptions) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{target: t, o: o, refusals: logLimiter{lastLogged: make(map[string]time.Time)}}
	s.gate = &gate{server: s, access: o.Access, most: 8 * s.most(), open: make(map[netip.Addr]int)}
	return s
}

// Serve answers clients of a listener until ctx ends, and then ends every stream.
// It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	const mayPing = 5 * time.Second // istiod pings every 30 s, and grpc's default of 5 min would end its connection
	largest := maxMessage
	if s.o.DataPlanes != nil {
		largest = maxDataPlaneMessage
		s.running.Go(func() { s.updateDataPlanes(ctx) })
		s.gate.rest = newRESTListener(l.Addr())
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
	if err := g.Serve(gatedListener{l, s.gate}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	<-ended // Serve returns without an error only after Stop
	return nil
}

// StreamAggregatedResources implements the state-of-the-world variant, which istiod
// speaks.
func (s *Server) StreamAggregatedResources(st discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(st.Context(), &sotwStream{newGRPCStream(st)})
}

// DeltaAggregatedResources implements the incremental variant.
func (s *Server) DeltaAggregatedResources(st discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(st.Context(), &deltaStream{newGRPCStream(st)})
}

func (s *Server) serve(ctx context.Context, v protocolVariant) error {
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
	return st.supervise(ctx)
}

// newStream returns a stream of an address; nil: it is not known.
func (s *Server) newStream(from net.Addr) *clientStream {
	st := &clientStream{server: s, reader: Reader{Since: time.Now()}, replaced: make(chan struct{})}
	if from != nil {
		st.reader.Address, st.from = from.String(), addressOf(from)
	}
	return st
}

// Readers returns the connected istiods and data planes, the oldest first.
func (s *Server) Readers() []Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Reader, len(s.streams))
	for i, st := range s.streams {
		out[i] = st.shown()
	}
	return out
}

// Departed returns the reader that left last, and when; the zero time if none has.
func (s *Server) Departed() (Reader, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed, s.departedAt
}

// open adds a stream. If there is no room, it returns the limit.
func (s *Server) open(st *clientStream) (most int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := func(o *clientStream) bool { return o.from != st.from }
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

// room reports whether there is room for one more stream. For that it may end the
// oldest one that never asked for the served type: it is no istiod. The caller
// holds mu.
func (s *Server) room(among []*clientStream, most int) bool {
	if len(among) < most {
		return true
	}
	i := slices.IndexFunc(among, func(st *clientStream) bool { return !st.isReader })
	if i < 0 {
		return false
	}
	close(among[i].replaced)
	s.remove(among[i])
	return true
}

// most returns how many streams may be open. One address may have half of them.
func (s *Server) most() int {
	if s.o.DataPlanes != nil {
		return maxDataPlanes
	}
	return maxStreams
}

// remove removes a stream. The caller holds mu.
func (s *Server) remove(st *clientStream) {
	s.streams = slices.DeleteFunc(s.streams, func(o *clientStream) bool { return o == st })
}

// markReading records that a stream asked for the served type.
func (s *Server) markReading(st *clientStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.isReader = true
}

func (s *Server) closed(st *clientStream) {
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

// Without TLS and without a list of networks any client may connect. So all that
// one may use is bounded, in number, in time and in bytes.
const (
	// handshakeWithin bounds a handshake.
	handshakeWithin = 10 * time.Second

	// idleFor is how long a connection may be without a stream.
	idleFor = 5 * time.Minute

	// maxStreams is more than the istiods of any mesh. Each may have one answer in
	// memory that it does not read.
	maxStreams = 100

	// maxDataPlanes bounds the streams if data planes are served too. Each costs
	// some kilobytes, and what it does not read.
	maxDataPlanes = 10_000

	// maxStreamsOnOne bounds the streams of a connection. An istiod has one; a
	// proxy for several istiods opens another connection.
	maxStreamsOnOne = 10

	// askWithin is how long a stream may ask for nothing. istiod asks at once.
	askWithin = 5 * time.Second

	// readWithin is how long a client may read one answer: 100,000 endpoints are
	// ten megabytes.
	readWithin = time.Minute

	// maxTypes is more than the types that any istiod asks for, about twenty. Each
	// is kept as long as the stream.
	maxTypes = 100
)

// In bytes.
const (
	// maxMessage bounds what is read of a request. It is several times the bounds
	// of its parts.
	maxMessage = 1 << 20

	// maxDataPlaneMessage has room for the names of 50,000 clusters, which an Envoy
	// sends with each request in the state of the world.
	maxDataPlaneMessage = 4 << 20

	// maxHeaders bounds what grpc keeps of a stream; a token fits in it.
	maxHeaders = 16 << 10

	// window bounds what grpc buffers of a connection; by default that grows to
	// 16 MiB.
	window = 64 << 10

	// maxKnownBytes bounds what a client says it has, which istiod does not say. It
	// is kept until the first answer: about 7,000 hosts.
	maxKnownBytes = 1 << 20
	knownCost     = 64 // of an entry in a map, beside its text
)
