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

// Event is an event of a stream or of REST.
type Event struct {
	Kind    EventKind
	Node    string // id of the client's node
	TypeURL string
	Version string // the version that was sent, confirmed or rejected
	Message string // of EventNack: the client's reason
}

// EventKind distinguishes events.
type EventKind string

// The kinds of events.
const (
	EventSubscribed EventKind = "subscribed" // the first request of a type
	EventSent       EventKind = "sent"
	EventAck        EventKind = "ack"  // a response was confirmed
	EventNack       EventKind = "nack" // a response was rejected
)

// Stream serves a stream of the state-of-the-world variant until ctx ends or the stream
// fails. It calls observe from one goroutine.
func (s *Server) Stream(ctx context.Context, st stream.Stream, observe func(Event)) error {
	v := s.store.openView()
	defer v.close()
	c := s.newCallbacks(observe)
	defer c.close()
	return sotw.NewServer(ctx, v, c, sotw.WithOrderedADS()).StreamHandler(st, resource.AnyType)
}

// Delta is Stream for the incremental variant.
func (s *Server) Delta(ctx context.Context, st stream.DeltaStream, observe func(Event)) error {
	v := s.store.openView()
	defer v.close()
	c := s.newCallbacks(observe)
	defer c.close()
	return delta.NewServer(ctx, v, c).DeltaStreamHandler(st, resource.AnyType)
}

// A restPoll answers one REST request.
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
	response, err := rest.NewServer(v, nil).Fetch(ctx, r)
	e := Event{Kind: EventSent, Node: node.GetId(), TypeURL: r.GetTypeUrl(), Version: response.GetVersionInfo()}
	if _, isCurrent := errors.AsType[*types.SkipFetchError](err); isCurrent {
		e.Version = r.GetVersionInfo()
		p.observe(e)
		e.Kind = EventAck
	} else if err != nil {
		return nil, err
	}
	p.observe(e)
	return response, err
}

// maxBody is more than the size of any REST request.
const maxBody = 4 << 20

// Poll answers a REST request of an Envoy. It calls observe before it returns.
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
	_, _ = w.Write(body) // fails if the client has left
}

// Bounds of requests, in bytes.
const (
	MaxTypeURL = 300      // six times the longest of Envoy's and Istio's
	MaxNode    = 64 << 10 // several times the node of an Envoy or an istiod

	maxVersion  = 300       // several times the longest of our versions
	maxNames    = 16 << 20  // names that one stream requests: about 100,000
	maxAllNames = 256 << 20 // names that all streams request
	nameCost    = 64        // memory for a name without its text
)

// maxTypes bounds the types of a stream. go-control-plane has room for one response of each of
// its own types.
const maxTypes = 10

// A lastResponse is the state of the last response of a type.
type lastResponse struct {
	version   string
	nonce     string // empty once the response was confirmed or rejected
	nameBytes int64  // size of the names in the last request; only in the state-of-the-world variant
}

// callbacks check and observe the messages of one stream. Only its goroutine touches them.
type callbacks struct {
	server.CallbackFuncs // for events without a method here

	dataPlanes *Server
	observe    func(Event)
	node       string
	types      map[string]*lastResponse
	nameBytes  int64 // size of the names that the stream requests
}

func (s *Server) newCallbacks(observe func(Event)) *callbacks {
	return &callbacks{dataPlanes: s, observe: observe, types: make(map[string]*lastResponse)}
}

// close takes the names of the stream out of the server's count.
func (c *callbacks) close() { c.dataPlanes.nameBytes.Add(-c.nameBytes) }

// countNames adds the size of newly requested names, and subtracts that of others. It fails
// if the stream, or all streams together, request too many.
func (c *callbacks) countNames(more, less int64) error {
	less = min(less, c.nameBytes+more)
	c.nameBytes += more - less
	if all := c.dataPlanes.nameBytes.Add(more - less); c.nameBytes > maxNames || more > 0 && all > maxAllNames {
		return errNames
	}
	return nil
}

// sizeOf returns the memory that names need.
func sizeOf(names []string) int64 {
	n := 0
	for _, name := range names {
		n += nameCost + len(name)
	}
	return int64(n)
}

// handleRequest handles a request of either variant. An error ends the stream.
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
			return status.Errorf(codes.ResourceExhausted, "a stream may request at most %d types", maxTypes)
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

// recordSent records that a response was sent.
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
func (c *callbacks) OnStreamResponse(
	_ context.Context, _ int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse,
) {
	c.recordSent(r.GetTypeUrl(), r.GetVersionInfo(), r.GetNonce())
}

// OnStreamDeltaRequest implements delta.Callbacks.
func (c *callbacks) OnStreamDeltaRequest(_ int64, r *discovery.DeltaDiscoveryRequest) error {
	more, less := sizeOf(r.GetResourceNamesSubscribe()), sizeOf(r.GetResourceNamesUnsubscribe())
	if err := c.countNames(more, less); err != nil {
		return err
	}
	return c.handleRequest(r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail())
}

// OnStreamDeltaResponse implements delta.Callbacks.
func (c *callbacks) OnStreamDeltaResponse(
	_ int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse,
) {
	c.recordSent(r.GetTypeUrl(), r.GetSystemVersionInfo(), r.GetNonce())
}

var (
	// errNode has the text of istiod's error.
	errNode = status.Error(codes.InvalidArgument, "missing node information: the node has no id")

	errMissed = status.Error(codes.Aborted,
		"too many resources were removed since the last confirmed response; open a new stream")
	errNames = status.Error(codes.ResourceExhausted, "too many resource names are requested")
	errSize  = status.Error(codes.ResourceExhausted,
		"type or version longer than 300 bytes, or node larger than 64 KiB")
)

// A sotwResponse is a response of the state-of-the-world variant. Its content is made when it
// is sent.
type sotwResponse struct {
	cache.PassthroughResponse

	view         *streamView
	subscription *viewSubscription
}

func newSotwResponse(v *streamView, s *viewSubscription, r *cache.Request) *sotwResponse {
	// The view records what was sent, so ReturnedResources is empty.
	response := cache.PassthroughResponse{Request: r, ReturnedResources: make(map[string]string)}
	return &sotwResponse{response, v, s}
}

// GetDiscoveryResponse implements cache.Response.
func (a *sotwResponse) GetDiscoveryResponse() (*discovery.DiscoveryResponse, error) {
	if a.DiscoveryResponse != nil {
		return a.DiscoveryResponse, nil
	}
	defer a.view.lock()()
	response := &discovery.DiscoveryResponse{TypeUrl: a.Request.GetTypeUrl(), VersionInfo: "none"}
	state := a.subscription.state
	if state != nil {
		response.VersionInfo = state.version()
	}
	var d viewDifference
	if state != nil && isWhole(a.subscription.url) {
		d.send = make([]*storedResource, 0, state.liveCount())
		for r := range state.changesSince(0) {
			if a.subscription.wants(r) && a.view.isCurrent(a.subscription, r) {
				d.send = append(d.send, r)
			}
		}
	} else {
		d = a.view.difference(a.subscription)
	}
	response.Resources = make([]*anypb.Any, len(d.send))
	for i, r := range d.send {
		response.Resources[i] = r.sotwFor(a.view.locality)
	}
	a.view.markSent(a.subscription, d.send)
	a.DiscoveryResponse = response
	return response, nil
}

// A deltaResponse is a response of the incremental variant. Its content is made when it is
// sent.
type deltaResponse struct {
	cache.DeltaPassthroughResponse

	view         *streamView
	subscription *viewSubscription
}

func newDeltaResponse(v *streamView, s *viewSubscription, r *cache.DeltaRequest) *deltaResponse {
	response := cache.DeltaPassthroughResponse{DeltaRequest: r, NextVersionMap: make(map[string]string)}
	return &deltaResponse{response, v, s}
}

// GetDeltaDiscoveryResponse implements cache.DeltaResponse.
func (a *deltaResponse) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	if a.DeltaDiscoveryResponse != nil {
		return a.DeltaDiscoveryResponse, nil
	}
	defer a.view.lock()()
	d := a.view.difference(a.subscription)
	response := &discovery.DeltaDiscoveryResponse{
		TypeUrl: a.DeltaRequest.GetTypeUrl(), RemovedResources: d.removed,
		Resources: make([]*discovery.Resource, len(d.send)),
	}
	if a.subscription.state != nil {
		response.SystemVersionInfo = a.subscription.state.version()
	}
	for i, r := range d.send {
		response.Resources[i] = r.deltaFor(a.view.locality)
	}
	a.view.markSent(a.subscription, d.send)
	a.DeltaDiscoveryResponse = response
	return response, nil
}
