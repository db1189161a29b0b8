package ads_test

import (
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
)

// script is a server that does nothing by itself: the test reads each request
// and writes each response.
type script struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	worlds chan *talk[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]
	deltas chan *talk[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse]
}

func scripted(t *testing.T) (*script, *network) {
	t.Helper()
	s := &script{
		worlds: make(chan *talk[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse], 100),
		deltas: make(chan *talk[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse], 100),
	}
	return s, serve(t, func(g *grpc.Server) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s) }, istiodfake.ServerOptions()...)
}

func (s *script) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	k := newTalk[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]()
	s.worlds <- k
	return k.serve(stream)
}

func (s *script) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	k := newTalk[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse]()
	s.deltas <- k
	return k.serve(stream)
}

// talk is one stream of a script.
type talk[Q, A any] struct {
	requests chan Q
	answers  chan A
	end      chan error
	ended    chan struct{}
}

func newTalk[Q, A any]() *talk[Q, A] {
	return &talk[Q, A]{requests: make(chan Q, 10_000), answers: make(chan A, 1000), end: make(chan error, 1), ended: make(chan struct{})}
}

// duplex is a server's side of a stream.
type duplex[Q, A any] interface {
	Recv() (Q, error)
	Send(A) error
}

func (k *talk[Q, A]) serve(stream duplex[Q, A]) error {
	defer close(k.ended)
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			k.requests <- r
		}
	}()
	for {
		select {
		case <-broken:
			return nil
		case err := <-k.end:
			return err
		case a := <-k.answers:
			if err := stream.Send(a); err != nil {
				return err
			}
		}
	}
}

// request returns the next request, which must be there already.
func (k *talk[Q, A]) request(t *testing.T) Q {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-k.requests:
		return r
	default:
		t.Fatal("no request, want one")
		panic("unreachable")
	}
}

// silent checks that nothing was sent.
func (k *talk[Q, A]) silent(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-k.requests:
		t.Fatalf("request %v, want none", r)
	default:
	}
}

func (k *talk[Q, A]) answer(a A) {
	k.answers <- a
	synctest.Wait()
}

func (k *talk[Q, A]) close(err error) {
	k.end <- err
	synctest.Wait()
}

type (
	world = talk[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]
	delta = talk[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse]
)

// next returns a stream that was opened.
func next[K any](t *testing.T, opened chan K) K {
	t.Helper()
	synctest.Wait()
	select {
	case k := <-opened:
		return k
	default:
		t.Fatal("no stream, want one")
		panic("unreachable")
	}
}

func body(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// say builds a state-of-the-world response.
func say(url, version, nonce string, resources ...proto.Message) *discoveryv3.DiscoveryResponse {
	r := &discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: version, Nonce: nonce}
	for _, m := range resources {
		if a, ok := m.(*anypb.Any); ok {
			r.Resources = append(r.Resources, a)
			continue
		}
		r.Resources = append(r.Resources, body(m))
	}
	return r
}

// deltaOf returns a delta response.
func deltaOf(url, nonce string, removed []string, resources ...*discoveryv3.Resource) *discoveryv3.DeltaDiscoveryResponse {
	return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, Nonce: nonce, SystemVersionInfo: "s-" + nonce, RemovedResources: removed, Resources: resources}
}

// wrap puts a resource in its envelope.
func wrap(name, version string, m proto.Message) *discoveryv3.Resource {
	r := &discoveryv3.Resource{Name: name, Version: version}
	if m != nil {
		r.Resource = body(m)
	}
	return r
}

// garbage is of the right type and unreadable.
func garbage(url string) *anypb.Any { return &anypb.Any{TypeUrl: url, Value: []byte{0xff, 0xff, 0xff}} }

// stories runs each in virtual time.
func stories(t *testing.T, all map[string]func(t *testing.T)) {
	t.Helper()
	for name, story := range all {
		t.Run(name, func(t *testing.T) { synctest.Test(t, story) })
	}
}
