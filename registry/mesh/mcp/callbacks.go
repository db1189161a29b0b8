package mcp

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-bridge/xds-bridge/naming"
)

var (
	_ sotw.Callbacks  = (*Server)(nil)
	_ delta.Callbacks = (*Server)(nil)
)

// OnStreamOpen implements sotw.Callbacks.
func (s *Server) OnStreamOpen(ctx context.Context, id int64, _ string) error {
	s.open(ctx, id)
	return nil
}

// OnStreamClosed implements sotw.Callbacks. The node is empty where the stream
// ended before its first request.
func (s *Server) OnStreamClosed(id int64, _ *corev3.Node) { s.closed(id) }

// OnStreamRequest implements sotw.Callbacks.
func (s *Server) OnStreamRequest(id int64, req *discovery.DiscoveryRequest) error {
	s.refused(id, req.GetTypeUrl(), req.GetErrorDetail())
	return s.asked(id, req.GetNode(), req.GetTypeUrl(), req.GetVersionInfo())
}

// OnStreamResponse implements sotw.Callbacks.
func (s *Server) OnStreamResponse(_ context.Context, id int64, req *discovery.DiscoveryRequest, res *discovery.DiscoveryResponse) {
	s.sent(id, req.GetTypeUrl(), res.GetVersionInfo())
}

// OnDeltaStreamOpen implements delta.Callbacks. Delta and other streams are
// numbered apart, so those of delta are negative here.
func (s *Server) OnDeltaStreamOpen(ctx context.Context, id int64, _ string) error {
	s.open(ctx, -id)
	return nil
}

// OnDeltaStreamClosed implements delta.Callbacks.
func (s *Server) OnDeltaStreamClosed(id int64, _ *corev3.Node) { s.closed(-id) }

// OnStreamDeltaRequest implements delta.Callbacks.
func (s *Server) OnStreamDeltaRequest(id int64, req *discovery.DeltaDiscoveryRequest) error {
	s.refused(-id, req.GetTypeUrl(), req.GetErrorDetail())
	return s.asked(-id, req.GetNode(), req.GetTypeUrl(), "")
}

// OnStreamDeltaResponse implements delta.Callbacks.
func (s *Server) OnStreamDeltaResponse(id int64, req *discovery.DeltaDiscoveryRequest, res *discovery.DeltaDiscoveryResponse) {
	s.sent(-id, req.GetTypeUrl(), res.GetSystemVersionInfo())
}

// refused tells of the first answer that a stream refuses: whoever refuses one
// may go on doing so as fast as it likes.
func (s *Server) refused(id int64, typeURL string, why *statuspb.Status) {
	if why == nil {
		return
	}
	s.mu.Lock()
	st := s.streams[id]
	first := st != nil && !st.refused
	if first {
		st.refused = true
	}
	s.mu.Unlock()
	if first {
		s.o.Log.Warn("istiod refused an answer", "type", naming.Quote(typeURL), "reason", naming.Quote(why.GetMessage()))
	}
}
