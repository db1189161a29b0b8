package mcp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// said is a stream on which the client has said everything.
type said[Q proto.Message] struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // as grpc's streams have it

	mu       sync.Mutex
	requests []Q
}

// left returns how many requests were not read.
func (s *said[Q]) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *said[Q]) Context() context.Context { return s.ctx }

func (s *said[Q]) Recv() (Q, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		var none Q
		return none, io.EOF
	}
	next := s.requests[0]
	s.requests = s.requests[1:]
	return next, nil
}

type (
	saidWorld struct {
		*said[*discovery.DiscoveryRequest]
	}
	saidDelta struct {
		*said[*discovery.DeltaDiscoveryRequest]
	}
)

func (saidWorld) Send(*discovery.DiscoveryResponse) error      { return nil }
func (saidDelta) Send(*discovery.DeltaDiscoveryResponse) error { return nil }

// FuzzRequest shows that no request, in either variant, does more than end its
// own stream.
func FuzzRequest(f *testing.F) {
	for _, r := range []proto.Message{
		&discovery.DiscoveryRequest{TypeUrl: newType, Node: &corev3.Node{Id: "istiod"}},
		&discovery.DiscoveryRequest{TypeUrl: newType, VersionInfo: "0-0", ResponseNonce: "x", ErrorDetail: &statuspb.Status{Message: "\x1b[2J"}},
		&discovery.DiscoveryRequest{TypeUrl: "core/v1alpha1/MeshConfig", ResourceNames: []string{"*", "*", ""}},
		&discovery.DeltaDiscoveryRequest{TypeUrl: oldType, ResourceNamesSubscribe: []string{"*"}, ResourceNamesUnsubscribe: []string{"*", "a"}, InitialResourceVersions: map[string]string{"a": ""}},
		&discovery.DeltaDiscoveryRequest{},
		&discovery.DiscoveryRequest{TypeUrl: endpointType, Node: &corev3.Node{Id: "envoy"}, ResourceNames: []string{"*", "outbound|80||a.internal", ""}},
		&discovery.DeltaDiscoveryRequest{TypeUrl: clusterType, Node: &corev3.Node{Id: "envoy"}, ResourceNamesSubscribe: []string{"a"}, InitialResourceVersions: map[string]string{"a": ""}, ResponseNonce: "1"},
	} {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, data, false)
		f.Add(data, data, true)
	}
	f.Fuzz(func(t *testing.T, first, second []byte, incremental bool) {
		planes := dataplane.NewServer(dataplane.Options{})
		planes.Update([]dataplane.Entry{{Name: "imported/a", Spec: &networking.ServiceEntry{
			Hosts: []string{"a.internal"}, Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		}}}, nil)
		for _, o := range []mcp.ServerOptions{{}, {DataPlanes: planes}} {
			server := serving(t, o)
			if incremental {
				sayDelta(t, server, first, second)
			} else {
				sayWorld(t, server, first, second)
			}
			if left := server.Readers(); len(left) != 0 {
				t.Errorf("Readers() = %+v, want none", left)
			}
		}
	})
}

// sayWorld sends requests to a server that are in bytes, where they are any.
func sayWorld(t *testing.T, server *mcp.Server, requests ...[]byte) {
	t.Helper()
	st := saidWorld{&said[*discovery.DiscoveryRequest]{ctx: t.Context()}}
	for _, data := range requests {
		var r discovery.DiscoveryRequest
		if proto.Unmarshal(data, &r) != nil {
			return
		}
		st.requests = append(st.requests, &r)
	}
	_ = server.StreamAggregatedResources(st)
}

func sayDelta(t *testing.T, server *mcp.Server, requests ...[]byte) {
	t.Helper()
	st := saidDelta{&said[*discovery.DeltaDiscoveryRequest]{ctx: t.Context()}}
	for _, data := range requests {
		var r discovery.DeltaDiscoveryRequest
		if proto.Unmarshal(data, &r) != nil {
			return
		}
		st.requests = append(st.requests, &r)
	}
	_ = server.DeltaAggregatedResources(st)
}

func serving(t *testing.T, o mcp.ServerOptions) *mcp.Server {
	t.Helper()
	target := mcp.NewTarget(mcp.Options{Owner: "me"})
	target.SourcesComplete()
	return mcp.NewServer(target, o)
}

// TestServer_BoundsAStream: a client that makes types up is not remembered
// without end, and one that refuses what it was never sent fills no log.
func TestServer_BoundsAStream(t *testing.T) {
	t.Parallel()
	target := mcp.NewTarget(mcp.Options{Owner: "me"})
	var log strings.Builder // which one goroutine writes
	server := mcp.NewServer(target, mcp.ServerOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	var requests []*discovery.DiscoveryRequest
	for n := range 1000 {
		requests = append(requests,
			&discovery.DiscoveryRequest{TypeUrl: newType, ErrorDetail: &statuspb.Status{Message: strings.Repeat("no", 1<<10)}},
			&discovery.DiscoveryRequest{TypeUrl: fmt.Sprintf("made/up%d", n)})
	}
	st := saidWorld{&said[*discovery.DiscoveryRequest]{ctx: t.Context(), requests: requests}}
	err := server.StreamAggregatedResources(st)
	if status.Code(err) != codes.ResourceExhausted || st.left() == 0 {
		t.Errorf("stream ended with %v with %d requests to go, want ResourceExhausted and some", err, st.left())
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "reason=request") {
		t.Errorf("logged %.500s, want one line with reason=request", text)
	}
}
