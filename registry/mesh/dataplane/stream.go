package dataplane

import (
	"context"
	"errors"
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/rest/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Event is an event of a stream.
type Event struct {
	Kind    EventKind
	Node    string // of the client
	TypeURL string
	Version string // that was sent, confirmed or refused
	Message string // why the client refuses it
}

// EventKind distinguishes events.
type EventKind string

// The kinds of events.
const (
	EventSubscribed EventKind = "subscribed" // to a type
	EventSent       EventKind = "sent"
	EventAck        EventKind = "ack"
	EventNack       EventKind = "nack"
)

// Stream answers a stream of the state of the world until ctx ends. It calls
// observe from one goroutine.
func (s *Server) Stream(ctx context.Context, st stream.Stream, observe func(Event)) error {
	v := s.store.openView()
	defer v.close()
	c := s.newCallbacks(observe)
	defer c.close()
	return sotw.NewServer(ctx, v, c, sotw.WithOrderedADS()).StreamHandler(st, resource.AnyType)
}

// Delta answers a stream of the incremental form until ctx ends.
func (s *Server) Delta(ctx context.Context, st stream.DeltaStream, observe func(Event)) error {
	v := s.store.openView()
	defer v.close()
	c := s.newCallbacks(observe)
	defer c.close()
	return delta.NewServer(ctx, v, c).DeltaStreamHandler(st, resource.AnyType)
}

// A restPoll answers a request of REST.
type restPoll struct {
	server  *Server
	observe func(Event)
}

// Fetch implements rest.Server.
func (p restPoll) Fetch(ctx context.Context, r *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	node := r.GetNode()
	if proto.Size(node) > MaxNode || len(r.GetVersionInfo()) > maxVersion {
		return nil, errSize
	}
	if node.GetId() == "" {
		return nil, errNode
	}
	v := p.server.store.openView()
	defer v.close()
	answer, err := rest.NewServer(v, nil).Fetch(ctx, r)
	e := Event{Kind: EventSent, Node: node.GetId(), TypeURL: r.GetTypeUrl(), Version: answer.GetVersionInfo()}
	if _, hasIt := errors.AsType[*types.SkipFetchError](err); hasIt {
		e.Version = r.GetVersionInfo()
		p.observe(e)
		e.Kind = EventAck
	} else if err != nil {
		return nil, err
	}
	p.observe(e)
	return answer, err
}

// maxBody is more than the bytes of any request of REST.
const maxBody = 4 << 20

// Poll answers a request of REST, as Envoy sends them. It calls observe before it
// returns.
func (s *Server) Poll(w http.ResponseWriter, r *http.Request, observe func(Event)) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	gateway := server.HTTPGateway{Server: server.NewServerAdvanced(restPoll{s, observe}, nil, nil)}
	body, code, err := gateway.ServeHTTP(r)
	if err != nil {
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone
}

// Bounds of what streams ask for. go-control-plane has room for one answer of each
// of its own types.
const (
	MaxTypeURL = 300      // bytes; six times the longest of Envoy's and Istio's
	MaxNode    = 64 << 10 // bytes; several times the node of an Envoy or an istiod

	maxTypes    = 10
	maxVersion  = 300       // bytes; several times the longest of ours
	maxNames    = 16 << 20  // bytes of one stream: about 100,000 names
	maxAllNames = 256 << 20 // and of all together
	nameCost    = 64        // of one, beside its text
)

// A lastResponse is the last answer of a type.
type lastResponse struct {
	version   string
	nonce     string // empty: it was confirmed or refused
	nameBytes int64  // bytes of the names in the last request, in the state of the world
}

// callbacks check and observe the messages of one stream.
type callbacks struct {
	server.CallbackFuncs // of events without a method here

	dataPlanes *Server
	observe    func(Event)
	node       string
	types      map[string]*lastResponse
	nameBytes  int64 // bytes of what the stream asks for
}

func (s *Server) newCallbacks(observe func(Event)) *callbacks {
	return &callbacks{dataPlanes: s, observe: observe, types: make(map[string]*lastResponse)}
}

// close uncounts the names of the stream.
func (c *callbacks) close() { c.dataPlanes.nameBytes.Add(-c.nameBytes) }

// countNames counts names that a stream asks for, and uncounts others. An error
// says that there are too many.
func (c *callbacks) countNames(more, less int64) error {
	less = min(less, c.nameBytes+more)
	c.nameBytes += more - less
	if all := c.dataPlanes.nameBytes.Add(more - less); c.nameBytes > maxNames || more > 0 && all > maxAllNames {
		return errNames
	}
	return nil
}

func sizeOf(names []string) int64 {
	n := 0
	for _, name := range names {
		n += nameCost + len(name)
	}
	return int64(n)
}

// handleRequest handles a request of either form. An error ends the stream.
func (c *callbacks) handleRequest(node *corev3.Node, url, nonce string, refused *statuspb.Status) error {
	if len(url) > MaxTypeURL || proto.Size(node) > MaxNode {
		return errSize
	}
	if c.node == "" {
		c.node = node.GetId()
	}
	if c.node == "" {
		return errNode
	}
	last := c.types[url]
	if last == nil {
		if len(c.types) >= maxTypes {
			return status.Errorf(codes.ResourceExhausted, "a stream may ask for %d types", maxTypes)
		}
		last = &lastResponse{}
		c.types[url] = last
		c.observe(Event{Kind: EventSubscribed, Node: c.node, TypeURL: url})
	}
	if last.nonce == "" || nonce != last.nonce {
		return nil
	}
	last.nonce = ""
	if e := (Event{Kind: EventAck, Node: c.node, TypeURL: url, Version: last.version}); refused == nil {
		c.observe(e)
	} else {
		e.Kind, e.Message = EventNack, refused.GetMessage()
		c.observe(e)
	}
	return nil
}

func (c *callbacks) recordSent(url, version, nonce string) {
	last := c.types[url]
	last.version, last.nonce = version, nonce
	c.observe(Event{Kind: EventSent, Node: c.node, TypeURL: url, Version: version})
}

// OnStreamRequest implements sotw.Callbacks.
func (c *callbacks) OnStreamRequest(_ int64, r *discovery.DiscoveryRequest) error {
	if err := c.handleRequest(r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail()); err != nil {
		return err
	}
	last := c.types[r.GetTypeUrl()]
	before := last.nameBytes
	last.nameBytes = sizeOf(r.GetResourceNames())
	return c.countNames(last.nameBytes, before)
}

// OnStreamResponse implements sotw.Callbacks.
func (c *callbacks) OnStreamResponse(_ context.Context, _ int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse) {
	c.recordSent(r.GetTypeUrl(), r.GetVersionInfo(), r.GetNonce())
}

// OnStreamDeltaRequest implements delta.Callbacks.
func (c *callbacks) OnStreamDeltaRequest(_ int64, r *discovery.DeltaDiscoveryRequest) error {
	if err := c.countNames(sizeOf(r.GetResourceNamesSubscribe()), sizeOf(r.GetResourceNamesUnsubscribe())); err != nil {
		return err
	}
	return c.handleRequest(r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail())
}

// OnStreamDeltaResponse implements delta.Callbacks.
func (c *callbacks) OnStreamDeltaResponse(_ int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
	c.recordSent(r.GetTypeUrl(), r.GetSystemVersionInfo(), r.GetNonce())
}

var (
	errNode   = status.Error(codes.InvalidArgument, "missing node information: the node has no id") // as istiod has it
	errMissed = status.Error(codes.Aborted, "too much is gone since what was confirmed last: start again")
	errNames  = status.Error(codes.ResourceExhausted, "names of more bytes than there is room for")
	errSize   = status.Error(codes.ResourceExhausted, "a type or version of more than 300 bytes, or a node of more than 64 KiB")
)

// A sotwResponse is an answer in the state of the world. It is made when it is sent.
type sotwResponse struct {
	cache.PassthroughResponse

	v *streamView
	s *viewSubscription
}

func newSotwResponse(v *streamView, s *viewSubscription, r *cache.Request) *sotwResponse {
	// The view records what was sent, so ReturnedResources is empty.
	return &sotwResponse{cache.PassthroughResponse{Request: r, ReturnedResources: make(map[string]string)}, v, s}
}

// GetDiscoveryResponse implements cache.Response.
func (a *sotwResponse) GetDiscoveryResponse() (*discovery.DiscoveryResponse, error) {
	if a.DiscoveryResponse != nil {
		return a.DiscoveryResponse, nil
	}
	defer a.v.lock()()
	answer, state := &discovery.DiscoveryResponse{TypeUrl: a.Request.GetTypeUrl(), VersionInfo: "none"}, a.s.state
	if state != nil {
		answer.VersionInfo = state.version()
	}
	var d viewDifference
	if state != nil && isWhole(a.s.url) {
		d.send = make([]*storedResource, 0, state.liveCount())
		for r := range state.changesSince(0) {
			if a.s.wants(r) && a.v.isCurrent(a.s, r) {
				d.send = append(d.send, r)
			}
		}
	} else {
		d = a.v.difference(a.s)
	}
	answer.Resources = make([]*anypb.Any, len(d.send))
	for i, r := range d.send {
		answer.Resources[i] = r.sotwFor(a.v.locality)
	}
	a.v.markSent(a.s, d.send)
	a.DiscoveryResponse = answer
	return answer, nil
}

// A deltaResponse is an answer in the incremental form. It is made when it is sent.
type deltaResponse struct {
	cache.DeltaPassthroughResponse

	v *streamView
	s *viewSubscription
}

func newDeltaResponse(v *streamView, s *viewSubscription, r *cache.DeltaRequest) *deltaResponse {
	return &deltaResponse{cache.DeltaPassthroughResponse{DeltaRequest: r, NextVersionMap: make(map[string]string)}, v, s}
}

// GetDeltaDiscoveryResponse implements cache.DeltaResponse.
func (a *deltaResponse) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	if a.DeltaDiscoveryResponse != nil {
		return a.DeltaDiscoveryResponse, nil
	}
	defer a.v.lock()()
	d := a.v.difference(a.s)
	answer := &discovery.DeltaDiscoveryResponse{
		TypeUrl: a.DeltaRequest.GetTypeUrl(), RemovedResources: d.removed, Resources: make([]*discovery.Resource, len(d.send)),
	}
	if a.s.state != nil {
		answer.SystemVersionInfo = a.s.state.version()
	}
	for i, r := range d.send {
		answer.Resources[i] = r.deltaFor(a.v.locality)
	}
	a.v.markSent(a.s, d.send)
	a.DeltaDiscoveryResponse = answer
	return answer, nil
}
