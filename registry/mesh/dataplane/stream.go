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

// Event is one thing that happened on a stream.
type Event struct {
	Kind    EventKind
	Node    string // of the client
	TypeURL string
	Version string // that was sent, or is confirmed or refused
	Message string // the client's, of what it refuses
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

// Stream answers a stream of the state of the world until ctx ends. observe is
// notified of it, from one goroutine.
func (s *Server) Stream(ctx context.Context, st stream.Stream, observe func(Event)) error {
	v := s.store.openView()
	defer v.close()
	c := s.watch(observe)
	defer c.close()
	return sotw.NewServer(ctx, v, c, sotw.WithOrderedADS()).StreamHandler(st, resource.AnyType) //nolint:wrapcheck // a status of grpc
}

// Delta answers a stream of the incremental form until ctx ends.
func (s *Server) Delta(ctx context.Context, st stream.DeltaStream, observe func(Event)) error {
	v := s.store.openView()
	defer v.close()
	c := s.watch(observe)
	defer c.close()
	return delta.NewServer(ctx, v, c).DeltaStreamHandler(st, resource.AnyType) //nolint:wrapcheck // a status of grpc
}

// A poll is one request of REST.
type poll struct {
	server  *Server
	observe func(Event)
}

// Fetch implements rest.Server: one answer, as REST gets it.
func (p poll) Fetch(ctx context.Context, r *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	node := r.GetNode()
	if proto.Size(node) > maxNode || len(r.GetVersionInfo()) > maxVersion {
		return nil, errSize //nolint:wrapcheck // a status of grpc
	}
	if node.GetId() == "" {
		return nil, errNode //nolint:wrapcheck // a status of grpc
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
		return nil, err //nolint:wrapcheck // a status of grpc
	}
	p.observe(e)
	return answer, err //nolint:wrapcheck // types.SkipFetchError, which the gateway knows
}

// maxBody is more than any request of REST.
const maxBody = 4 << 20

// Poll answers a request of REST, as Envoy polls. observe is notified of what it is
// sent, before Poll returns.
func (s *Server) Poll(w http.ResponseWriter, r *http.Request, observe func(Event)) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	gateway := server.HTTPGateway{Server: server.NewServerAdvanced(poll{s, observe}, nil, nil)}
	body, code, err := gateway.ServeHTTP(r)
	if err != nil {
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client that is gone wants no answer
}

// What streams may ask for. go-control-plane keeps room for one answer of each
// of its own types.
const (
	maxTypes   = 10
	maxTypeURL = 300       // bytes; six times the longest of Envoy's
	maxNode    = 64 << 10  // bytes; several times the node of an Envoy
	maxVersion = 300       // bytes; several times the longest of ours
	maxNames   = 16 << 20  // bytes of one stream: about 100,000 names
	allNames   = 256 << 20 // and of all together
	nameCost   = 64        // what one takes beside its text
)

// answered is the last answer of a type.
type answered struct {
	version, nonce string
	isOpen         bool  // it was neither confirmed nor refused
	names          int64 // bytes of those that the last request asked for, in the state of the world
}

// callbacks look at what goes over one stream.
type callbacks struct {
	server  *Server
	observe func(Event)
	node    string
	types   map[string]*answered
	names   int64 // bytes of what the stream asks for
}

func (s *Server) watch(observe func(Event)) *callbacks {
	return &callbacks{server: s, observe: observe, types: make(map[string]*answered)}
}

// close gives back what the names of the stream took.
func (c *callbacks) close() { c.server.names.Add(-c.names) }

// countNames notes that a stream asks for names, and for others no more.
func (c *callbacks) countNames(more, less int64) error {
	less = min(less, c.names+more)
	c.names += more - less
	if all := c.server.names.Add(more - less); c.names > maxNames || more > 0 && all > allNames {
		return errNames //nolint:wrapcheck // a status of grpc
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

var (
	_ sotw.Callbacks  = (*callbacks)(nil)
	_ delta.Callbacks = (*callbacks)(nil)
)

// requested looks at a request of either form. An error ends the stream.
func (c *callbacks) requested(node *corev3.Node, url, nonce string, refused *statuspb.Status) error {
	if len(url) > maxTypeURL || proto.Size(node) > maxNode {
		return errSize //nolint:wrapcheck // a status of grpc
	}
	if c.node == "" {
		c.node = node.GetId()
	}
	if c.node == "" {
		return errNode //nolint:wrapcheck // a status of grpc
	}
	last := c.types[url]
	if last == nil {
		if len(c.types) >= maxTypes {
			return status.Errorf(codes.ResourceExhausted, "a stream may ask for %d types", maxTypes)
		}
		last = &answered{}
		c.types[url] = last
		c.observe(Event{Kind: EventSubscribed, Node: c.node, TypeURL: url})
	}
	if nonce != last.nonce || !last.isOpen {
		return nil
	}
	last.isOpen = false
	if e := (Event{Kind: EventAck, Node: c.node, TypeURL: url, Version: last.version}); refused == nil {
		c.observe(e)
	} else {
		e.Kind, e.Message = EventNack, refused.GetMessage()
		c.observe(e)
	}
	return nil
}

func (c *callbacks) sent(url, version, nonce string) {
	last := c.types[url]
	last.version, last.nonce, last.isOpen = version, nonce, true
	c.observe(Event{Kind: EventSent, Node: c.node, TypeURL: url, Version: version})
}

// OnStreamOpen implements sotw.Callbacks.
func (*callbacks) OnStreamOpen(context.Context, int64, string) error { return nil }

// OnStreamClosed implements sotw.Callbacks.
func (*callbacks) OnStreamClosed(int64, *corev3.Node) {}

// OnStreamRequest implements sotw.Callbacks.
func (c *callbacks) OnStreamRequest(_ int64, r *discovery.DiscoveryRequest) error {
	if err := c.requested(r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail()); err != nil {
		return err
	}
	last := c.types[r.GetTypeUrl()]
	before := last.names
	last.names = sizeOf(r.GetResourceNames())
	return c.countNames(last.names, before)
}

// OnStreamResponse implements sotw.Callbacks.
func (c *callbacks) OnStreamResponse(_ context.Context, _ int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse) {
	c.sent(r.GetTypeUrl(), r.GetVersionInfo(), r.GetNonce())
}

// OnDeltaStreamOpen implements delta.Callbacks.
func (*callbacks) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnDeltaStreamClosed implements delta.Callbacks.
func (*callbacks) OnDeltaStreamClosed(int64, *corev3.Node) {}

// OnStreamDeltaRequest implements delta.Callbacks.
func (c *callbacks) OnStreamDeltaRequest(_ int64, r *discovery.DeltaDiscoveryRequest) error {
	if err := c.countNames(sizeOf(r.GetResourceNamesSubscribe()), sizeOf(r.GetResourceNamesUnsubscribe())); err != nil {
		return err
	}
	return c.requested(r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail())
}

// OnStreamDeltaResponse implements delta.Callbacks.
func (c *callbacks) OnStreamDeltaResponse(_ int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
	c.sent(r.GetTypeUrl(), r.GetSystemVersionInfo(), r.GetNonce())
}

var (
	errNode   = status.Error(codes.InvalidArgument, "missing node information: the node has no id") // as istiod has it
	errMissed = status.Error(codes.Aborted, "too much is gone since what was confirmed last: start again")
	errNames  = status.Error(codes.ResourceExhausted, "names of more bytes than there is room for")
	errSize   = status.Error(codes.ResourceExhausted, "a type or version of more than 300 bytes, or a node of more than 64 KiB")
)

// world is an answer in the state of the world.
type world struct {
	v       *view
	s       *subscription
	request *cache.Request
	answer  *discovery.DiscoveryResponse
}

// GetDiscoveryResponse implements cache.Response. It is called when the answer
// is sent.
func (w *world) GetDiscoveryResponse() (*discovery.DiscoveryResponse, error) {
	if w.answer != nil {
		return w.answer, nil
	}
	defer w.v.lock()()
	w.answer = &discovery.DiscoveryResponse{TypeUrl: w.request.GetTypeUrl(), VersionInfo: "none"}
	if w.s.typed != nil {
		w.answer.VersionInfo = w.s.typed.version()
	}
	send := func(r *stored) {
		w.v.sends(w.s, r)
		w.answer.Resources = append(w.answer.Resources, r.worldFor(w.v.locality))
	}
	if w.s.typed != nil && isWhole(w.s.url) {
		w.answer.Resources = make([]*anypb.Any, 0, w.s.typed.count)
		for r := range w.s.typed.since(0) {
			if w.s.wants(r) && w.v.sees(w.s, r) {
				send(r)
			}
		}
	} else {
		w.v.due(w.s, sink{send, func(string) {}})
	}
	w.v.sent(w.s)
	return w.answer, nil
}

// GetRequest implements cache.Response.
func (w *world) GetRequest() *discovery.DiscoveryRequest { return w.request }

// GetVersion implements cache.Response.
func (w *world) GetVersion() (string, error) { return w.GetResponseVersion(), nil }

// GetResponseVersion implements cache.Response.
func (w *world) GetResponseVersion() string { return w.answer.GetVersionInfo() }

// GetReturnedResources implements cache.Response. The view keeps what was sent.
func (*world) GetReturnedResources() map[string]string { return map[string]string{} }

// GetContext implements cache.Response.
func (*world) GetContext() context.Context { return context.Background() }

// differences is an answer in the incremental form.
type differences struct {
	v       *view
	s       *subscription
	request *cache.DeltaRequest
	answer  *discovery.DeltaDiscoveryResponse
}

// GetDeltaDiscoveryResponse implements cache.DeltaResponse. It is called when
// the answer is sent.
func (d *differences) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	if d.answer != nil {
		return d.answer, nil
	}
	defer d.v.lock()()
	d.answer = &discovery.DeltaDiscoveryResponse{TypeUrl: d.request.GetTypeUrl()}
	if d.s.typed != nil {
		d.answer.SystemVersionInfo = d.s.typed.version()
	}
	d.v.due(d.s, sink{
		send: func(r *stored) {
			d.v.sends(d.s, r)
			d.answer.Resources = append(d.answer.Resources, r.deltaFor(d.v.locality))
		},
		gone: func(name string) { d.answer.RemovedResources = append(d.answer.RemovedResources, name) },
	})
	d.v.sent(d.s)
	return d.answer, nil
}

// GetDeltaRequest implements cache.DeltaResponse.
func (d *differences) GetDeltaRequest() *discovery.DeltaDiscoveryRequest { return d.request }

// GetSystemVersion implements cache.DeltaResponse.
func (d *differences) GetSystemVersion() (string, error) { return d.GetResponseVersion(), nil }

// GetResponseVersion implements cache.DeltaResponse.
func (d *differences) GetResponseVersion() string { return d.answer.GetSystemVersionInfo() }

// GetNextVersionMap implements cache.DeltaResponse.
func (d *differences) GetNextVersionMap() map[string]string { return d.GetReturnedResources() }

// GetReturnedResources implements cache.DeltaResponse. The view keeps what was
// sent.
func (*differences) GetReturnedResources() map[string]string { return map[string]string{} }

// GetContext implements cache.DeltaResponse.
func (*differences) GetContext() context.Context { return context.Background() }
