package istiod_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
)

// step is one request and what istiod does about it.
type step struct {
	url     string
	names   []string
	gone    []string // delta: given up
	nonce   string   // "last" is the last one of the type
	err     bool
	id      string // of the node, if bad is set
	bad     bool
	verdict istiodfake.Verdict
	answer  []string // names in the answer; nil for no answer
	also    []string // endpoints that follow
}

const (
	cds = istiodfake.ClusterType
	eds = istiodfake.EndpointType
)

// TestServer_StateOfTheWorld is istiod's ShouldRespond as a table.
func TestServer_StateOfTheWorld(t *testing.T) {
	first := step{url: eds, names: []string{"a"}, verdict: istiodfake.Initial, answer: []string{"a"}}
	all := step{url: cds, verdict: istiodfake.Initial, answer: []string{"a", "b"}}
	for name, steps := range map[string][]step{
		"a first request is answered whatever its nonce": {{url: cds, nonce: "garbage", verdict: istiodfake.Initial, answer: []string{"a", "b"}}},
		"an acknowledgement is not answered":             {all, {url: cds, nonce: "last", verdict: istiodfake.Acknowledgement}},
		"a rejection is recorded":                        {all, {url: cds, nonce: "last", err: true, verdict: istiodfake.Rejection}},
		"a rejection of what is not watched would crash": {all, {url: eds, nonce: "x", err: true, verdict: istiodfake.Crash}},
		"the names beside a rejection are ignored": {
			first,
			{url: eds, names: []string{"a", "b"}, nonce: "last", err: true, verdict: istiodfake.Rejection},
			{url: eds, names: []string{"a"}, nonce: "last", verdict: istiodfake.Acknowledgement},
		},
		"a stale request is ignored with its names": {
			first,
			{url: eds, names: []string{"a", "b"}, nonce: "old", verdict: istiodfake.Stale},
			{url: eds, names: []string{"a"}, nonce: "last", verdict: istiodfake.Acknowledgement},
		},
		"a request without a nonce starts anew":     {first, {url: eds, names: []string{"b"}, verdict: istiodfake.Initial, answer: []string{"b"}}},
		"only added endpoints are answered":         {first, {url: eds, names: []string{"a", "b"}, nonce: "last", verdict: istiodfake.Change, answer: []string{"b"}}},
		"removed endpoint names are not answered":   {first, {url: eds, names: []string{"c"}, nonce: "last", verdict: istiodfake.Change, answer: []string{"c"}}, {url: eds, names: []string{"c"}, nonce: "last", verdict: istiodfake.Acknowledgement}},
		"cluster names that change are answered":    {all, {url: cds, names: []string{"*"}, nonce: "last", verdict: istiodfake.Change, answer: []string{"a", "b"}}},
		"no endpoint names unsubscribe":             {first, {url: eds, nonce: "last", verdict: istiodfake.Unsubscription}, {url: eds, names: []string{"a"}, nonce: "last", verdict: istiodfake.Initial, answer: []string{"a"}}},
		"endpoints are answered after new clusters": {first, all, {url: eds, names: []string{"a"}, nonce: "last", verdict: istiodfake.Forced, answer: []string{"a"}}, {url: eds, names: []string{"a"}, nonce: "last", verdict: istiodfake.Acknowledgement}},
		"endpoints that do not exist are empty":     {{url: eds, names: []string{"nowhere"}, verdict: istiodfake.Initial, answer: []string{"nowhere"}}},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { walk(t, (*client).speakWorld, steps) }) })
	}
}

// TestDelta is istiod's shouldRespondDelta as a table.
func TestDelta(t *testing.T) {
	first := step{url: eds, names: []string{"a"}, verdict: istiodfake.Initial, answer: []string{"a"}}
	all := step{url: cds, names: []string{"*"}, verdict: istiodfake.Initial, answer: []string{"a", "b"}}
	for name, steps := range map[string][]step{
		"a first request is answered":               {all},
		"an acknowledgement is not answered":        {all, {url: cds, nonce: "last", verdict: istiodfake.Acknowledgement}},
		"a stale acknowledgement is ignored":        {all, {url: cds, nonce: "old", verdict: istiodfake.Stale}},
		"a rejection of what is not watched":        {{url: eds, nonce: "x", err: true, verdict: istiodfake.Crash}},
		"names beside a rejection are ignored":      {first, {url: eds, names: []string{"b"}, nonce: "last", err: true, verdict: istiodfake.Rejection}, {url: eds, names: []string{"b"}, verdict: istiodfake.Change, answer: []string{"b"}}},
		"a name is added":                           {first, {url: eds, names: []string{"b"}, verdict: istiodfake.Change, answer: []string{"b"}}},
		"a name is given up":                        {first, {url: eds, gone: []string{"a"}, verdict: istiodfake.Change}},
		"names in an acknowledgement are a mistake": {first, {url: eds, names: []string{"b"}, nonce: "last", verdict: istiodfake.Mismatch, answer: []string{"b"}}},
		"nothing new without a nonce is a mistake":  {first, {url: eds, names: []string{"a"}, verdict: istiodfake.Mismatch}},
		"endpoints follow clusters":                 {first, {url: cds, names: []string{"*"}, verdict: istiodfake.Initial, answer: []string{"a", "b"}, also: []string{"a"}}},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { walk(t, (*client).speakDelta, steps) }) })
	}
}

// walk runs the steps on one stream.
func walk(t *testing.T, speak variant, steps []step) {
	t.Helper()
	s := istiodfake.NewServer()
	s.Set(&clusterv3.Cluster{Name: "a"}, &clusterv3.Cluster{Name: "b"}, &endpointv3.ClusterLoadAssignment{ClusterName: "a"})
	stream := dial(t, s, speak)
	last := map[string]string{}
	for i, x := range steps {
		if x.nonce == "last" {
			x.nonce = last[x.url]
		}
		stream.send(x)
		synctest.Wait()
		requests := s.Requests("")
		if got := requests[len(requests)-1].Verdict; got != x.verdict {
			t.Fatalf("step %d: verdict %q, want %q", i, got, x.verdict)
		}
		stream.expect(t, x.url, x.answer, last)
		stream.expect(t, eds, x.also, last)
		select {
		case a := <-stream.answers:
			t.Fatalf("step %d: answered with %v", i, a.names)
		default:
		}
	}
}

type answer struct {
	url, nonce string
	names      []string
}

// client is a stream of either variant.
type client struct {
	send    func(step)
	answers chan answer
	err     chan error
}

func (c *client) expect(t *testing.T, url string, names []string, last map[string]string) {
	t.Helper()
	if names == nil {
		return
	}
	select {
	case a := <-c.answers:
		if a.url != url || !slices.Equal(a.names, names) {
			t.Fatalf("answered with %s %v, want %s %v", a.url, a.names, url, names)
		}
		last[url] = a.nonce
	default:
		t.Fatalf("no answer, want %v", names)
	}
}

func node(x step) *corev3.Node {
	if x.bad {
		return &corev3.Node{Id: x.id}
	}
	return &corev3.Node{Id: "sidecar~10.0.0.1~p.ns~ns.svc.cluster.local"}
}

// variant opens a stream of one variant.
type variant func(*client, *testing.T, discoveryv3.AggregatedDiscoveryServiceClient)

func dial(t *testing.T, s *istiodfake.Server, speak variant) *client {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	g := grpc.NewServer(istiodfake.ServerOptions()...)
	s.Register(g)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(lis)
	}()
	conn, err := grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		<-served
	})
	c := &client{answers: make(chan answer, 100), err: make(chan error, 1)}
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	speak(c, t, ads)
	return c
}

func detail(x step) *statuspb.Status {
	if !x.err {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: "bad"}
}

func (c *client) speakWorld(t *testing.T, ads discoveryv3.AggregatedDiscoveryServiceClient) {
	t.Helper()
	stream, err := ads.StreamAggregatedResources(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c.send = func(x step) {
		_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: x.url, Node: node(x), ResourceNames: x.names, ResponseNonce: x.nonce, ErrorDetail: detail(x)})
	}
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				c.err <- err
				return
			}
			a := answer{url: r.GetTypeUrl(), nonce: r.GetNonce(), names: []string{}}
			for _, res := range r.GetResources() {
				m, err := res.UnmarshalNew()
				if err != nil {
					a.names = append(a.names, string(res.GetValue()))
					continue
				}
				a.names = append(a.names, istiodfake.NameOf(m))
			}
			c.answers <- a
		}
	}()
}

func (c *client) speakDelta(t *testing.T, ads discoveryv3.AggregatedDiscoveryServiceClient) {
	t.Helper()
	stream, err := ads.DeltaAggregatedResources(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c.send = func(x step) {
		_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: x.url, Node: node(x), ResourceNamesSubscribe: x.names, ResourceNamesUnsubscribe: x.gone,
			ResponseNonce: x.nonce, ErrorDetail: detail(x),
		})
	}
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				c.err <- err
				return
			}
			a := answer{url: r.GetTypeUrl(), nonce: r.GetNonce(), names: []string{}}
			for _, res := range r.GetResources() {
				a.names = append(a.names, res.GetName())
			}
			c.answers <- a
		}
	}()
}

func TestDebug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := istiodfake.NewServer()
		s.Debug(func(_ context.Context, name string) ([]byte, error) {
			if name != "adsz" {
				return nil, status.Errorf(codes.PermissionDenied, "not yours")
			}
			return []byte(`{"totalClients":1}`), nil
		})
		c := dial(t, s, (*client).speakWorld)
		for range 2 { // an acknowledgement is a request and is answered too
			c.send(step{url: istiodfake.DebugType, names: []string{"adsz"}})
			synctest.Wait()
			c.expect(t, istiodfake.DebugType, []string{`{"totalClients":1}`}, map[string]string{})
		}
		if n := len(s.Connections()); n != 1 {
			t.Fatalf("%d connections, want one", n)
		}
		c.send(step{url: istiodfake.DebugType, names: []string{"syncz"}})
		synctest.Wait()
		if err := <-c.err; status.Code(err) != codes.PermissionDenied {
			t.Fatalf("a refused debug request ends the stream: %v", err)
		}
	})
}

func TestServer_RefusesNodes(t *testing.T) {
	for name, id := range map[string]string{
		"no id": "", "two parts": "sidecar~10.0.0.1", "unknown type": "gateway~10.0.0.1~a.b~c", "no address": "sidecar~host~a.b~c",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, istiodfake.NewServer(), (*client).speakWorld)
				c.send(step{url: cds, id: id, bad: true})
				synctest.Wait()
				if err := <-c.err; status.Code(err) != codes.InvalidArgument {
					t.Fatalf("not refused: %v", err)
				}
			})
		})
	}
}

func TestContents(t *testing.T) {
	s := istiodfake.NewServer()
	s.SetNamed("odd", &clusterv3.Cluster{Name: "other"})
	s.Set(&clusterv3.Cluster{Name: "a"}, &endpointv3.ClusterLoadAssignment{ClusterName: "a"})
	if got := s.Names(cds); !slices.Equal(got, []string{"a", "odd"}) {
		t.Fatalf("clusters %v", got)
	}
	s.Replace([]string{cds, eds}, &clusterv3.Cluster{Name: "b"})
	if got := append(s.Names(cds), s.Names(eds)...); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("resources %v", got)
	}
}
