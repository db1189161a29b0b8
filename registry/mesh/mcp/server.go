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

	// DataPlanes answers data planes with what the target serves. If nil, data planes
	// are not served.
	DataPlanes *dataplane.Server

	// Setting is the prefix of the settings of Access in log messages, such as
	// registries.mesh.istiod.import.
	Setting string

	Log *slog.Logger // nil: nothing is logged
}

// A Server serves the set of one target to istiods and data planes. It is safe for use by
// many goroutines; Serve may be called once.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	target   *Target
	o        ServerOptions
	gate     *gate
	refusals logLimiter

	// running has the goroutines that Serve waits for at its end.
	running sync.WaitGroup

	// Guarded by mu, as is clientStream.isReader.
	mu         sync.Mutex
	streams    []*clientStream // the oldest first
	departed   Reader          // the reader that disconnected last
	departedAt time.Time
}

// A Reader is a connected istiod or data plane.
type Reader struct {
	Node    string    `json:"node"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Types   int       `json:"types"` // number of types that it requested

	// Sent and Acked are the versions of the last set that was sent to it, and of the
	// last one that it confirmed. For a data plane they may be of any type.
	Sent  string `json:"sent"`
	Acked string `json:"acked"`

	DataPlane bool `json:"dataPlane,omitempty"`

	// Refused is the type that a data plane rejected last, and its reason. It is empty
	// again once the data plane confirms a response of refusedType.
	Refused     string `json:"refused,omitempty"`
	refusedType string
}

// NewServer returns a server of a target.
func NewServer(t *Target, o ServerOptions) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{target: t, o: o, refusals: logLimiter{lastLogged: make(map[string]time.Time)}}
	s.gate = &gate{
		server: s, access: o.Access, maxConnections: 8 * s.maxOpenStreams(), perAddress: make(map[netip.Addr]int),
	}
	return s
}

// Serve serves the clients of a listener until ctx ends. It then ends every stream and
// closes the listener. It fails only if the listener does.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// istiod pings every 30 s. With grpc's default of 5 min its connection would be closed.
	const minPingInterval = 5 * time.Second
	largest := maxMessage
	if s.o.DataPlanes != nil {
		largest = maxDataPlaneMessage
		s.running.Go(func() { s.updateDataPlanes(ctx) })
		s.gate.rest = newRESTListener(l.Addr())
		s.running.Go(func() {
			if err := s.gate.rest.serve(ctx, s); err != nil {
				s.o.Log.Error("rest server failed", "err", err)
			}
		})
	}
	g := grpc.NewServer(
		grpc.Creds(s.gate.credentials()), grpc.ConnectionTimeout(handshakeWithin),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: idleFor,
		}),
		grpc.MaxConcurrentStreams(maxStreamsOnOne), grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(largest), grpc.MaxHeaderListSize(maxHeaders),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
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
	<-ended // g.Serve returns nil only after Stop
	return nil
}

// StreamAggregatedResources serves a stream of the state-of-the-world variant, which
// istiod uses.
func (s *Server) StreamAggregatedResources(
	st discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer,
) error {
	return s.serve(st.Context(), &sotwStream{newGRPCStream(st)})
}

// DeltaAggregatedResources serves a stream of the incremental variant.
func (s *Server) DeltaAggregatedResources(
	st discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer,
) error {
	return s.serve(st.Context(), &deltaStream{newGRPCStream(st)})
}

func (s *Server) serve(ctx context.Context, v protocolVariant) error {
	var from net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr
	}
	st := s.newStream(from)
	st.variant = v
	if limit, ok := s.addStream(st); !ok {
		return st.refuse(RefusedStreams, codes.ResourceExhausted, fmt.Errorf("%d streams are open, the maximum", limit))
	}
	s.target.o.Observe(Observation{Kind: ObservedOpen})
	defer s.streamClosed(st)
	return st.supervise(ctx)
}

// newStream returns a stream from an address, which may be nil if it is unknown.
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
		out[i] = st.readerCopy()
	}
	return out
}

// Departed returns the reader that disconnected last, and when. The time is zero if no
// reader has disconnected.
func (s *Server) Departed() (Reader, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed, s.departedAt
}

// addStream adds a stream. If too many are open, it returns false and the limit: one
// address may have half of maxOpenStreams.
func (s *Server) addStream(st *clientStream) (limit int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isFromElsewhere := func(o *clientStream) bool { return o.from != st.from }
	limit = s.maxOpenStreams()
	if !s.makeRoom(slices.DeleteFunc(slices.Clone(s.streams), isFromElsewhere), limit/2) {
		return limit / 2, false
	}
	if !s.makeRoom(s.streams, limit) {
		return limit, false
	}
	s.streams = append(s.streams, st)
	return 0, true
}

// makeRoom reports whether one more stream may be added to some streams. If the limit is
// reached, it ends the oldest of them that never requested the served type, because that
// client is not an istiod. The caller holds mu.
func (s *Server) makeRoom(among []*clientStream, limit int) bool {
	if len(among) < limit {
		return true
	}
	i := slices.IndexFunc(among, func(st *clientStream) bool { return !st.isReader })
	if i < 0 {
		return false
	}
	close(among[i].replaced)
	s.removeStream(among[i])
	return true
}

// maxOpenStreams returns how many streams may be open at the same time.
func (s *Server) maxOpenStreams() int {
	if s.o.DataPlanes != nil {
		return maxDataPlanes
	}
	return maxStreams
}

// removeStream removes a stream from streams. The caller holds mu.
func (s *Server) removeStream(st *clientStream) {
	s.streams = slices.DeleteFunc(s.streams, func(o *clientStream) bool { return o == st })
}

// markReader records that a stream requested the served type.
func (s *Server) markReader(st *clientStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.isReader = true
}

// streamClosed removes a stream that ended, and logs it if the client was known.
func (s *Server) streamClosed(st *clientStream) {
	s.mu.Lock()
	s.removeStream(st)
	if st.isReader {
		s.departed, s.departedAt = st.readerCopy(), time.Now()
	}
	s.mu.Unlock()
	s.target.o.Observe(Observation{Kind: ObservedClosed})
	switch p := st.readerCopy(); {
	case p.DataPlane:
		s.o.Log.Info("data plane disconnected", "node", naming.Quote(p.Node), "address", p.Address)
	case p.Node != "":
		s.o.Log.Info("istiod disconnected", "node", naming.Quote(p.Node), "address", p.Address)
	}
}

// Without TLS and without a list of networks any host may connect. Therefore everything
// that a client can use is bounded in number, time and bytes.
const (
	// handshakeWithin bounds a handshake.
	handshakeWithin = 10 * time.Second

	// idleFor is how long a connection may have no stream.
	idleFor = 5 * time.Minute

	// maxStreams is more than the istiods of any mesh. Each stream may keep one unread
	// response in memory.
	maxStreams = 100

	// maxDataPlanes bounds the streams if data planes are served too. Each stream needs
	// some kilobytes and its unread responses.
	maxDataPlanes = 10_000

	// maxStreamsOnOne bounds the streams of a connection. An istiod has one; a
	// proxy for several istiods opens another connection.
	maxStreamsOnOne = 10

	// firstRequestWithin is how long a stream may wait with its first request. istiod
	// sends its requests at once.
	firstRequestWithin = 5 * time.Second

	// readResponseWithin is how long a client may take to read one response. 100,000
	// endpoints are ten megabytes.
	readResponseWithin = time.Minute

	// maxTypes bounds the types of a stream, which are kept until it ends. An istiod
	// requests about twenty.
	maxTypes = 100
)

// In bytes.
const (
	// maxMessage bounds a request. It is several times the bounds of its parts.
	maxMessage = 1 << 20

	// maxDataPlaneMessage bounds a request if data planes are served. It has room for the
	// names of 50,000 clusters, which an Envoy sends with each state-of-the-world request.
	maxDataPlaneMessage = 4 << 20

	// maxHeaders bounds the headers of a stream. A token fits in.
	maxHeaders = 16 << 10

	// window bounds what grpc buffers for a connection. grpc's default grows to 16 MiB.
	window = 64 << 10

	// maxInitialVersionBytes bounds the initial resource versions of a client, which are
	// kept until its first response. It is enough for 7,000 hosts; istiod sends none.
	maxInitialVersionBytes = 1 << 20
	// mapEntryCost is the size of an entry of a map without its texts.
	mapEntryCost = 64
)
