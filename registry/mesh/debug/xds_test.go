package debug_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// fakeADS answers debug requests by istiod's rules: one resource name, a node
// on the first request, an answer to every request, and the end of the stream
// with a refusal.
type fakeADS struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	pages   *fakeIstiod
	network func(context.Context, string) (net.Conn, error)

	mu          sync.Mutex
	refuse      error
	unreachable error // why no connection is established; nil: it is
	silent      bool
	endAfter    int // answers on one stream, then the server ends it; 0: never
	streams     int
	requests    []*discovery.DiscoveryRequest
}

func (f *fakeADS) set(change func(*fakeADS)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeADS) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	f.set(func(f *fakeADS) { f.streams++ })
	for answers := 1; ; answers++ {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.requests = append(f.requests, request)
		refuse, silent, end := f.refuse, f.silent, f.endAfter
		f.mu.Unlock()
		switch {
		case answers == 1 && request.GetNode() == nil:
			return status.Error(codes.InvalidArgument, "missing node information")
		case refuse != nil:
			return refuse
		case silent:
			continue
		case request.GetTypeUrl() != "istio.io/debug" || len(request.GetResourceNames()) != 1:
			return status.Error(codes.InvalidArgument, "exactly one debug request is required")
		}
		page, _ := istiodfake.DebugPage(request.GetResourceNames()[0], f.pages.list())
		// A stray response of another type is not the requested one.
		_ = stream.Send(&discovery.DiscoveryResponse{TypeUrl: "other"})
		if err := stream.Send(&discovery.DiscoveryResponse{
			TypeUrl: "istio.io/debug", Nonce: "n", VersionInfo: "v",
			Resources: []*anypb.Any{{TypeUrl: "istio.io/debug", Value: page}},
		}); err != nil {
			return err
		}
		if answers == end {
			return nil
		}
	}
}

// xdsMesh is one istiod that is read over xDS, in memory.
func xdsMesh(t *testing.T) (*fakeADS, debug.Options) {
	t.Helper()
	f := &fakeADS{pages: newIstiod()}
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, f)
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		group.Wait()
	})
	f.network = func(ctx context.Context, _ string) (net.Conn, error) {
		f.mu.Lock()
		why := f.unreachable
		f.mu.Unlock()
		if why != nil {
			return nil, why
		}
		return listener.DialContext(ctx)
	}
	dial := func(string) (grpc.ClientConnInterface, func(), error) {
		conn, err := grpc.NewClient("passthrough:///istiod",
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(f.network))
		return conn, func() { _ = conn.Close() }, err
	}
	return f, debug.Options{
		Replicas: debug.Static("istiod"),
		XDS:      &debug.XDSOptions{Dial: dial, Node: &core.Node{Id: "router~10.0.0.9~xds-bridge-0.istio-system~istio-system.svc.cluster.local"}},
	}
}

func TestXDS(t *testing.T) {
	t.Parallel()
	run := func(name string, test func(t *testing.T, f *fakeADS, o debug.Options)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, o := xdsMesh(t)
				test(t, f, o)
			})
		})
	}
	run("the mapping over xDS is the one over HTTP", func(t *testing.T, f *fakeADS, o debug.Options) {
		n := newNetwork()
		n.serve(t, "127.0.0.1:15014", f.pages)
		f.pages.connect("a.shop", oneA)
		f.pages.connect("b.shop", oneB)
		f.pages.connect("bad.shop", "{")
		overXDS := watch(t, o)
		overHTTP := watch(t, debug.Options{Replicas: debug.Static("127.0.0.1"), HTTP: &debug.HTTPOptions{Dial: n.dial}})
		in(time.Second)
		expect(t, overXDS, "A a, B b")
		x, h := overXDS.snapshot(), overHTTP.snapshot()
		if !x.Mapping.Equal(h.Mapping) || !x.Complete || !h.Complete || !slices.Equal(x.Skipped, h.Skipped) {
			t.Errorf("%+v\n%+v", x, h)
		}
		f.pages.connect("c.shop", `{"providers:api.C::":"c.shop.svc.cluster.local:20000"}`)
		in(5 * time.Second)
		expect(t, overXDS, "A a, B b, C c")
	})
	run("nothing is ever acknowledged, and one stream serves for long", func(t *testing.T, f *fakeADS, o debug.Options) {
		f.pages.connect("a.shop", oneA)
		watch(t, o)
		in(10 * time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.streams != 1 || len(f.requests) > 240 || len(f.requests) < 118 {
			t.Errorf("%d streams, %d requests in ten minutes", f.streams, len(f.requests))
		}
		for i, r := range f.requests {
			if r.GetResponseNonce() != "" || r.GetVersionInfo() != "" || r.GetErrorDetail() != nil || (r.GetNode() != nil) != (i == 0) {
				t.Fatalf("request %d: %v", i, r)
			}
		}
	})
	run("a stream that ends between two requests is not a failure", func(t *testing.T, f *fakeADS, o debug.Options) {
		f.endAfter = 1
		f.pages.connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Minute)
		expect(t, w, "A a")
		if s := w.snapshot(); s.Err != nil || w.count() != 1 {
			t.Errorf("reported %d times, %v, want once and nil", w.count(), s.Err)
		}
	})
	for name, c := range map[string]struct {
		refuse error
		cause  debug.Cause
	}{
		"Unauthenticated":           {status.Error(codes.Unauthenticated, "authentication failure"), debug.Unauthorized},
		"PermissionDenied":          {status.Error(codes.PermissionDenied, "not allowed"), debug.Forbidden},
		"an old istiod's refusal":   {errors.New("Unauthenticated, unsupported"), debug.Unauthorized},
		"an old istiod's other one": {errors.New("permission denied"), debug.Forbidden},
		"not ready":                 {status.Error(codes.Unavailable, "server is not ready"), debug.Unreachable},
		"rate limit":                {status.Error(codes.ResourceExhausted, "rate limit"), debug.Refused},
		"no such service":           {status.Error(codes.Unimplemented, "unknown service"), debug.NotServed},
		"bad request":               {status.Error(codes.InvalidArgument, "bad\x1b[2Jnode"), debug.Refused},
		"something unknown":         {errors.New("oh"), debug.Refused},
	} {
		run(name+" keeps the mapping", func(t *testing.T, f *fakeADS, o debug.Options) {
			f.pages.connect("a.shop", oneA)
			w := watch(t, o)
			in(time.Second)
			f.set(func(f *fakeADS) { f.refuse = c.refuse })
			in(time.Minute)
			expect(t, w, "A a")
			expectCause(t, w.snapshot().Err, c.cause)
			f.set(func(f *fakeADS) { f.refuse = nil })
			in(5 * time.Second)
			if s := w.snapshot(); s.Err != nil {
				t.Errorf("Err = %v, want nil", s.Err)
			}
		})
	}
	run("no answer within the timeout is slow, and its stream is not used again", func(t *testing.T, f *fakeADS, o debug.Options) {
		f.pages.connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Second)
		f.set(func(f *fakeADS) { f.silent = true })
		in(time.Minute)
		expect(t, w, "A a")
		expectCause(t, w.snapshot().Err, debug.Slow)
		f.set(func(f *fakeADS) { f.silent = false })
		in(20 * time.Second)
		if s := w.snapshot(); s.Err != nil {
			t.Errorf("Err = %v, want nil", s.Err)
		}
	})
	run("an answer above the limit is too large", func(t *testing.T, f *fakeADS, o debug.Options) {
		o.MaxBytes = 1000
		for range 20 {
			f.pages.connect("a.shop", oneA)
		}
		w := watch(t, o)
		in(time.Second)
		expectCause(t, w.snapshot().Err, debug.TooLarge)
	})
	run("a client that is no longer connected is not a failure", func(t *testing.T, f *fakeADS, o debug.Options) {
		for range 100 {
			f.pages.connect("x.shop", oneB)
		}
		w := watch(t, o)
		in(time.Second)
		f.pages.connect("a.shop", oneA)
		in(5 * time.Second)
		expect(t, w, "A a, B b")
		last := f.requests[len(f.requests)-1]
		if got := last.GetResourceNames(); !slices.Equal(got, []string{"adsz?proxyID=a.shop-101"}) {
			t.Errorf("requests %v", got)
		}
		if text, code := istiodfake.DebugPage("adsz?proxyID=gone-1", f.pages.list()); code != http.StatusNotFound {
			t.Errorf("the fake returns %s, want 404", text)
		}
	})
	run("a connection that cannot be made is a failure of only that replica", func(t *testing.T, f *fakeADS, o debug.Options) {
		f.pages.connect("a.shop", oneA)
		o.Replicas = debug.Static("istiod", "other\x1b")
		dial := o.XDS.Dial
		o.XDS = &debug.XDSOptions{Node: o.XDS.Node, Dial: func(replica string) (grpc.ClientConnInterface, func(), error) {
			if replica != "istiod" {
				return nil, nil, errors.New("no such target")
			}
			return dial(replica)
		}}
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "A a")
		expectCause(t, w.snapshot().Err, debug.Unreachable)
		if w.snapshot().Complete {
			t.Error("Complete = true with one of two, want false")
		}
	})
	run("a token file that is missing is not blamed on the network", func(t *testing.T, f *fakeADS, o debug.Options) {
		o.XDS = &debug.XDSOptions{Node: o.XDS.Node, Dial: func(string) (grpc.ClientConnInterface, func(), error) {
			conn, err := ads.Dial("passthrough:///localhost:15010", ads.Credentials{TokenFile: "/nowhere/token"}, grpc.WithContextDialer(f.network))
			return conn, func() { _ = conn.Close() }, err
		}}
		w := watch(t, o)
		in(time.Second)
		expectCause(t, w.snapshot().Err, debug.NoToken)
	})
	run("an istiod that comes after an hour is read at once, and each error is that of the last attempt", func(t *testing.T, f *fakeADS, o debug.Options) {
		f.pages.connect("a.shop", oneA)
		unreachable := func(why error) { f.set(func(f *fakeADS) { f.unreachable = why }) }
		unreachable(errors.New("connection refused"))
		w := watch(t, o)
		in(time.Hour)
		expectCause(t, w.snapshot().Err, debug.Unreachable)
		unreachable(errors.New("no route to host"))
		in(debug.DefaultInterval)
		if err := w.snapshot().Err; !strings.Contains(fmt.Sprint(err), "no route to host") {
			t.Errorf("shown: %v, want the present error", err)
		}
		unreachable(nil)
		in(debug.DefaultInterval)
		expect(t, w, "A a")
	})
}
