package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	newType = "networking.istio.io/v1/ServiceEntry"
	oldType = "networking.istio.io/v1alpha3/ServiceEntry"
)

// istioTypes are the types that istiod 1.31 asks for at once.
func istioTypes() []string {
	return []string{
		"core/v1alpha1/MeshConfig", "security.istio.io/v1/AuthorizationPolicy", "security.istio.io/v1/PeerAuthentication",
		"security.istio.io/v1/RequestAuthentication", "networking.istio.io/v1/DestinationRule", "networking.istio.io/v1/Gateway",
		newType, "networking.istio.io/v1/Sidecar", "networking.istio.io/v1/VirtualService", "networking.istio.io/v1/WorkloadEntry",
		"networking.istio.io/v1/WorkloadGroup", "networking.istio.io/v1alpha3/EnvoyFilter", "networking.istio.io/v1beta1/ProxyConfig",
		"telemetry.istio.io/v1/Telemetry", "extensions.istio.io/v1alpha1/TrafficExtension", "extensions.istio.io/v1alpha1/WasmPlugin",
	}
}

func codec(t *testing.T) *serviceentry.Codec {
	t.Helper()
	c, err := serviceentry.New(serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}, Namespace: "xds-bridge",
		Mark: metadata.NewMark("me", "zk-to-mesh"), VIPs: netip.MustParsePrefix("240.64.0.0/12"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func greeter(iface string, hosts ...string) *registry.Service {
	s := &registry.Service{Name: registry.Name("dubbo:" + iface), Protocol: "tri", Interfaces: []registry.Interface{{Name: iface}}}
	for _, h := range hosts {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: h, Port: 20001, Weight: 100})
	}
	return s
}

// rig is a target, its server, and an in-memory listener.
type rig struct {
	t      *testing.T
	codec  *serviceentry.Codec
	target *mcp.Target
	server *mcp.Server
	listen *bufconn.Listener
	held   map[registry.Group]map[string]string
}

func start(t *testing.T, o mcp.Options) *rig {
	t.Helper()
	return startServer(t, o, mcp.ServerOptions{})
}

func startServer(t *testing.T, o mcp.Options, so mcp.ServerOptions) *rig {
	t.Helper()
	o.Owner = metadata.NewMark("me", "").Owner
	o.VIPs = netip.MustParsePrefix("240.64.0.0/12")
	target := mcp.NewTarget(o)
	r := &rig{
		t: t, codec: codec(t), target: target, server: mcp.NewServer(target, so),
		listen: bufconn.Listen(1 << 20), held: make(map[registry.Group]map[string]string),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = target.Run(ctx) })
	wg.Go(func() {
		if err := r.server.Serve(ctx, r.listen); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return r
}

// dial connects to the server as istiod does.
func (r *rig) dial() *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///bridge", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.listen.DialContext(ctx) }),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// put makes a service what the target holds of it.
func (r *rig) put(s *registry.Service) {
	r.t.Helper()
	entries, err := r.codec.Encode(s)
	if err != nil {
		r.t.Fatal(err)
	}
	byGroup := make(map[registry.Group][]registry.Entry)
	for _, e := range entries {
		byGroup[e.Group] = append(byGroup[e.Group], e)
	}
	for g, want := range byGroup {
		r.write(g, want)
	}
}

func (r *rig) write(g registry.Group, want []registry.Entry) {
	r.t.Helper()
	held, err := r.target.Read(r.t.Context(), g)
	if err != nil {
		r.t.Fatal(err)
	}
	c := registry.Change{Group: g, Want: want}
	old := make(map[string]registry.Held)
	for _, h := range held {
		old[h.Key] = h
	}
	for _, e := range want {
		h, there := old[e.Key]
		delete(old, e.Key)
		switch {
		case !there:
			c.Put = append(c.Put, registry.Write{New: e})
		case h.Value != e.Value:
			c.Put = append(c.Put, registry.Write{New: e, Old: &h})
		}
	}
	for _, h := range old {
		c.Delete = append(c.Delete, h)
	}
	if err := r.target.Write(r.t.Context(), c); err != nil {
		r.t.Fatal(err)
	}
}

// revision makes a host that is for one revision alone.
func (r *rig) revision(revision string) {
	r.t.Helper()
	g := registry.Group{Kind: serviceentry.Kind, Namespace: "xds-bridge", Name: "rev.zk1.bridge.internal", Exclusive: true}
	header := `{"host":"rev.zk1.bridge.internal","port":{"number":80,"name":"tcp","protocol":"TCP"},"labels":{"istio.io/rev":"` + revision + `"}}`
	r.write(g, []registry.Entry{{Group: g, Key: serviceentry.HeaderKey, Value: header}})
}

// istiod is a client that does what istiod does: garbage nonces first, then
// acknowledgements with the node.
type istiod struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node   *corev3.Node
	cancel context.CancelFunc

	stall chan struct{} // nothing more is read before it is closed; nil where it reads on
	mute  string        // a type of which no answer is confirmed
	takes time.Duration // to confirm an answer

	mu  sync.Mutex
	got map[string][]*discovery.DiscoveryResponse
	err error
}

// connectStalled is connect for an istiod that stops reading after its first
// answer until the returned function is called.
func (r *rig) connectStalled(types ...string) (*istiod, func()) {
	r.t.Helper()
	stall := make(chan struct{})
	i := r.open(&istiod{stall: stall}, "", types...)
	return i, func() { close(stall) }
}

func (r *rig) connect(revision string, types ...string) *istiod {
	r.t.Helper()
	return r.open(&istiod{}, revision, types...)
}

// silent is connect for an istiod that confirms no answer of a type.
func (r *rig) silent(mute string, types ...string) *istiod {
	r.t.Helper()
	return r.open(&istiod{mute: mute}, "", append(types, mute)...)
}

func (r *rig) open(i *istiod, revision string, types ...string) *istiod {
	r.t.Helper()
	return r.over(r.dial(), i, revision, types...)
}

// over is open on a connection, which may be refused.
func (r *rig) over(conn *grpc.ClientConn, i *istiod, revision string, types ...string) *istiod {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		cancel()
		return &istiod{t: r.t, err: err}
	}
	i.t, i.stream, i.cancel, i.got = r.t, stream, cancel, make(map[string][]*discovery.DiscoveryResponse)
	i.node = istiodNode(r.t, revision)
	for n, typeURL := range types {
		req := &discovery.DiscoveryRequest{TypeUrl: typeURL, ResponseNonce: time.Now().String()}
		if n == 0 {
			req.Node = i.node
		}
		if err := stream.Send(req); err != nil && !errors.Is(err, io.EOF) { // ended by the server, as Recv tells
			r.t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); i.receive() }()
	r.t.Cleanup(func() { cancel(); <-done })
	return i
}

func istiodNode(t *testing.T, revision string) *corev3.Node {
	t.Helper()
	meta, err := structpb.NewStruct(map[string]any{"GENERATOR": "api", "ISTIO_REVISION": revision})
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.Node{Id: "sidecar~10.0.0.1~istiod-1.istio-system~istio-system.svc.cluster.local", Metadata: meta}
}

func (i *istiod) receive() {
	for {
		res, err := i.stream.Recv()
		i.mu.Lock()
		if err != nil {
			i.err = err
			i.mu.Unlock()
			return
		}
		i.got[res.GetTypeUrl()] = append(i.got[res.GetTypeUrl()], res)
		i.mu.Unlock()
		if i.stall != nil {
			select {
			case <-i.stall:
			case <-i.stream.Context().Done():
			}
		}
		if res.GetTypeUrl() == i.mute {
			continue
		}
		time.Sleep(i.takes)
		_ = i.stream.Send(&discovery.DiscoveryRequest{Node: i.node, TypeUrl: res.GetTypeUrl(), VersionInfo: res.GetVersionInfo(), ResponseNonce: res.GetNonce()})
	}
}

func (i *istiod) answers(typeURL string) []*discovery.DiscoveryResponse {
	synctest.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.got[typeURL])
}

func (i *istiod) send(req *discovery.DiscoveryRequest) {
	i.t.Helper()
	if err := i.stream.Send(req); err != nil {
		i.t.Fatal(err)
	}
	synctest.Wait()
}

func (i *istiod) failed() error {
	synctest.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

// entries returns the ServiceEntries of the last answer of a type, as
// host=address,address.
func (i *istiod) entries(typeURL string) []string {
	i.t.Helper()
	all := i.answers(typeURL)
	if len(all) == 0 {
		return nil
	}
	out := []string{}
	for _, m := range decode(i.t, all[len(all)-1]) {
		var hosts []string
		for _, e := range m.spec.GetEndpoints() {
			hosts = append(hosts, e.GetAddress())
		}
		out = append(out, strings.TrimSuffix(m.spec.GetHosts()[0], ".k0-0-tri.zk1.bridge.internal")+"="+strings.Join(hosts, ","))
	}
	return out
}

type message struct {
	meta *mcpv1.Metadata
	spec *networking.ServiceEntry
}

func decode(t *testing.T, res *discovery.DiscoveryResponse) []message {
	t.Helper()
	var out []message
	for _, a := range res.GetResources() {
		var m mcpv1.Resource
		var spec networking.ServiceEntry
		if err := a.UnmarshalTo(&m); err != nil {
			t.Fatal(err)
		}
		if err := m.GetBody().UnmarshalTo(&spec); err != nil {
			t.Fatal(err)
		}
		out = append(out, message{m.GetMetadata(), &spec})
	}
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("istiod has %q, want %q", got, want)
	}
}

func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestServer(t *testing.T) {
	bubble(t, "sixteen first requests with garbage nonces get fifteen answers", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect("", istioTypes()...)
		for _, typeURL := range istioTypes()[1:] {
			if n := len(i.answers(typeURL)); n != 1 {
				t.Errorf("%s was answered %d times, want once", typeURL, n)
			}
		}
		if n := len(i.answers(istioTypes()[0])); n != 0 {
			t.Errorf("the mesh configuration was answered %d times", n)
		}
		expect(t, i.entries(newType), "api.a=10.0.0.1")
	})
	bubble(t, "a type nobody knows gets an empty answer, and the stream lives", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.target.SourcesComplete()
		i := r.connect("", "a.b/v9/Foo", newType)
		if all := i.answers("a.b/v9/Foo"); len(all) != 1 || len(all[0].GetResources()) != 0 {
			t.Errorf("answered %v", all)
		}
		time.Sleep(time.Hour)
		if err := i.failed(); err != nil {
			t.Error(err)
		}
	})
	bubble(t, "both spellings of the type get the same resources", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect("", oldType, newType)
		expect(t, i.entries(oldType), "api.a=10.0.0.1")
		expect(t, i.entries(newType), "api.a=10.0.0.1")
		if got := i.answers(newType)[0].GetResources()[0].GetTypeUrl(); got != "type.googleapis.com/istio.mcp.v1alpha1.Resource" {
			t.Errorf("wrapped as %s", got)
		}
	})
	bubble(t, "a change sends the whole set, and no change sends nothing", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.put(greeter("api.b", "10.0.0.2"))
		r.target.SourcesComplete()
		i := r.connect("", newType)
		r.put(greeter("api.b", "10.0.0.3", "10.0.0.4"))
		time.Sleep(time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.3,10.0.0.4")
		before := len(i.answers(newType))
		r.put(greeter("api.b", "10.0.0.3", "10.0.0.4"))
		time.Sleep(time.Minute)
		if n := len(i.answers(newType)); n != before {
			t.Errorf("%d answers without a change", n-before)
		}
	})
	bubble(t, "a confirmation gets silence, a stale nonce too, and neither confirms another answer", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect("", newType)
		first := i.answers(newType)[0]
		r.put(greeter("api.a", "10.0.0.2"))
		time.Sleep(time.Second)
		if n := len(i.answers(newType)); n != 2 {
			t.Fatalf("%d answers, want 2", n)
		}
		acked := r.server.Readers()[0].Acked
		for _, nonce := range []string{first.GetNonce(), "stale", ""} {
			i.send(&discovery.DiscoveryRequest{TypeUrl: newType, VersionInfo: first.GetVersionInfo(), ResponseNonce: nonce})
			time.Sleep(time.Minute)
			if n := len(i.answers(newType)); n != 2 {
				t.Errorf("nonce %q was answered", nonce)
			}
		}
		if now := r.server.Readers()[0].Acked; now != acked || acked == first.GetVersionInfo() {
			t.Errorf("confirmed is %s by a stale nonce, was %s", now, acked)
		}
	})
	bubble(t, "a type that is never confirmed holds no other up, and gets what is newest once it is", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.silent(oldType, istioTypes()...) // the mesh configuration is never answered, the old type never confirmed
		for n := range 10 {
			r.put(greeter("api.a", fmt.Sprintf("10.0.0.%d", n+2)))
			time.Sleep(time.Second)
		}
		expect(t, i.entries(newType), "api.a=10.0.0.11")
		old := i.answers(oldType)
		if len(old) != 1 {
			t.Fatalf("%d answers to a type that confirms none", len(old))
		}
		i.send(&discovery.DiscoveryRequest{TypeUrl: oldType, VersionInfo: old[0].GetVersionInfo(), ResponseNonce: old[0].GetNonce()})
		expect(t, i.entries(oldType), "api.a=10.0.0.11")
	})
	bubble(t, "a refused answer is not sent again before something changes, and is told of once", func(t *testing.T) {
		nacks := 0
		r := start(t, mcp.Options{Observe: func(o mcp.Observation) {
			if o.Kind == mcp.ObservedNack {
				nacks++
			}
		}})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.silent(newType, newType)
		for n := range 3 {
			all := i.answers(newType)
			if len(all) != n+1 {
				t.Fatalf("%d answers after %d changes", len(all), n)
			}
			i.send(&discovery.DiscoveryRequest{TypeUrl: newType, ResponseNonce: all[n].GetNonce(), ErrorDetail: &statuspb.Status{Message: "no"}})
			time.Sleep(time.Hour)
			r.put(greeter("api.a", fmt.Sprintf("10.0.0.%d", n+2)))
			time.Sleep(time.Second)
		}
		if p := r.server.Readers()[0]; nacks != 3 || p.Acked != "" {
			t.Errorf("%d refusals, %+v", nacks, p)
		}
	})
	bubble(t, "a restart with the same content has the same versions", func(t *testing.T) {
		versions := func() []string {
			r := start(t, mcp.Options{})
			r.put(greeter("api.a", "10.0.0.1", "10.0.0.2"))
			r.target.SourcesComplete()
			i := r.connect("", newType)
			res := i.answers(newType)[0]
			return []string{res.GetVersionInfo(), decode(t, res)[0].meta.GetVersion(), decode(t, res)[0].meta.GetCreateTime().AsTime().String()}
		}
		first, second := versions(), versions()
		if !slices.Equal(first, second) || slices.Contains(first, "") || strings.HasPrefix(first[2], "1970") {
			t.Errorf("%q and %q", first, second)
		}
	})
	bubble(t, "nothing is answered before every source told of everything", func(t *testing.T) {
		r := start(t, mcp.Options{})
		i := r.connect("", istioTypes()...)
		r.put(greeter("api.a", "10.0.0.1"))
		time.Sleep(time.Hour)
		if n := len(i.answers(newType)); n != 0 || r.target.Ready() == nil {
			t.Fatalf("%d answers before the target settled", n)
		}
		r.target.SourcesComplete()
		expect(t, i.entries(newType), "api.a=10.0.0.1")
		if err := r.target.Ready(); err != nil {
			t.Error(err)
		}
	})
	bubble(t, "a registry that is empty is answered with nothing, once it is known to be", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.target.SourcesComplete()
		i := r.connect("", newType)
		if all := i.answers(newType); len(all) != 1 || len(all[0].GetResources()) != 0 {
			t.Errorf("answered %v", all)
		}
	})
	bubble(t, "several istiods, and one that does not read delays nobody", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		one, two := r.connect("", newType), r.connect("", newType)
		slow, resume := r.connectStalled(newType)
		for n := range 50 {
			r.put(greeter("api.a", fmt.Sprintf("10.0.1.%d", n)))
			time.Sleep(100 * time.Millisecond)
		}
		expect(t, one.entries(newType), "api.a=10.0.1.49")
		expect(t, two.entries(newType), "api.a=10.0.1.49")
		resume()
		time.Sleep(time.Second)
		expect(t, slow.entries(newType), "api.a=10.0.1.49")
		if n := len(r.server.Readers()); n != 3 {
			t.Errorf("%d istiods in status, want 3", n)
		}
		if p := r.server.Readers()[0]; p.Sent == "" || p.Sent != p.Acked || !strings.Contains(p.Node, "istiod-1") {
			t.Errorf("peer %+v", p)
		}
	})
	bubble(t, "pings of thirty seconds end no connection", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.target.SourcesComplete()
		i := r.connect("", newType)
		time.Sleep(time.Hour)
		if err := i.failed(); err != nil {
			t.Error(err)
		}
	})
	bubble(t, "an istiod of a revision gets what is labelled for it", func(t *testing.T) {
		r := start(t, mcp.Options{RevisionFilter: true})
		r.revision("canary")
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		expect(t, r.connect("stable", newType).entries(newType), "api.a=10.0.0.1")
		if n := len(r.connect("canary", newType).entries(newType)); n != 2 {
			t.Errorf("the canary got %d entries, want 2", n)
		}
	})
	bubble(t, "what is served outlives the registry, and goes only when it is written so", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		r.connect("", newType)
		time.Sleep(24 * time.Hour)
		late := r.connect("", newType)
		expect(t, late.entries(newType), "api.a=10.0.0.1")
	})
	bubble(t, "a service without endpoints stays known, and one without entries is gone", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.put(greeter("api.b", "10.0.0.2"))
		r.target.SourcesComplete()
		i := r.connect("", newType)
		r.put(greeter("api.a"))
		groups, err := r.target.Groups(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.write(groups[1], nil)
		time.Sleep(time.Second)
		expect(t, i.entries(newType), "api.a=")
	})
	bubble(t, "two owners of one host are a conflict, not a mixture", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		entries, err := r.codec.Encode(greeter("api.a", "10.0.0.1", "10.0.0.2"))
		if err != nil {
			t.Fatal(err)
		}
		c := registry.Change{Group: entries[0].Group, Put: []registry.Write{{New: registry.Entry{Group: entries[0].Group, Key: entries[1].Key, Value: `{"address":"10.9.9.9","port":1}`}}}}
		if err := r.target.Write(t.Context(), c); err == nil {
			t.Error("an entry that was not known of was overwritten")
		}
	})
}

func TestTarget_ChangesOnlyWhatIsAsItWasHeld(t *testing.T) {
	g := registry.Group{Kind: serviceentry.Kind, Namespace: "xds-bridge", Name: "a.zk1.bridge.internal", Exclusive: true}
	header := registry.Entry{Group: g, Key: serviceentry.HeaderKey, Value: `{"host":"a.zk1.bridge.internal","port":{"number":80,"name":"tcp","protocol":"TCP"}}`}
	was := registry.Entry{Group: g, Key: "10.0.0.1:80", Value: `{"address":"10.0.0.1","port":80}`}
	now, other := was, was
	now.Value, other.Value = `{"address":"10.0.0.1","port":80,"weight":2}`, `{"address":"10.0.0.1","port":80,"weight":3}`
	held := func(e registry.Entry) *registry.Held { return &registry.Held{Entry: e} }
	for name, test := range map[string]struct {
		change registry.Change
		want   []registry.Entry // nil: it is a conflict, and all stays
	}{
		"delete what is held":           {change: registry.Change{Delete: []registry.Held{*held(now)}}, want: []registry.Entry{header}},
		"delete what changed since":     {change: registry.Change{Delete: []registry.Held{*held(was)}}},
		"delete what is gone":           {change: registry.Change{Delete: []registry.Held{{Entry: registry.Entry{Group: g, Key: "10.0.0.2:80"}}}}, want: []registry.Entry{header, now}},
		"replace what is held":          {change: registry.Change{Put: []registry.Write{{New: other, Old: held(now)}}}, want: []registry.Entry{header, other}},
		"replace what changed since":    {change: registry.Change{Put: []registry.Write{{New: other, Old: held(was)}}}},
		"replace with what is there":    {change: registry.Change{Put: []registry.Write{{New: now, Old: held(was)}}}, want: []registry.Entry{header, now}},
		"add what is there differently": {change: registry.Change{Put: []registry.Write{{New: other}}}},
	} {
		t.Run(name, func(t *testing.T) {
			target := mcp.NewTarget(mcp.Options{})
			if err := target.Write(t.Context(), registry.Change{Group: g, Put: []registry.Write{{New: header}, {New: now}}}); err != nil {
				t.Fatal(err)
			}
			test.change.Group = g
			err := target.Write(t.Context(), test.change)
			if want := test.want == nil; errors.Is(err, registry.ErrConflict) != want || (err != nil) != want {
				t.Errorf("a conflict is %v, want %v", err, want)
			}
			if test.want == nil {
				test.want = []registry.Entry{header, now}
			}
			var got []registry.Entry
			all, err := target.Read(t.Context(), g)
			for _, h := range all {
				got = append(got, h.Entry)
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("held are %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

// TestAnEndpointThatIsRefusedCostsItselfAlone also shows that a group without
// its header is refused as a whole.
func TestAnEndpointThatIsRefusedCostsItselfAlone(t *testing.T) {
	bubble(t, "one of three endpoints", func(t *testing.T) {
		r := start(t, mcp.Options{})
		entries, err := r.codec.Encode(greeter("api.A", "10.0.0.1", "10.0.0.2"))
		if err != nil || len(entries) != 3 {
			t.Fatal(entries, err)
		}
		g := entries[0].Group
		bad := registry.Entry{Group: g, Key: "z", Value: "no JSON"}
		puts := func(entries ...registry.Entry) registry.Change {
			c := registry.Change{Group: g, Want: entries}
			for _, e := range entries {
				c.Put = append(c.Put, registry.Write{New: e})
			}
			return c
		}
		var refused registry.Refused
		if err := r.target.Write(t.Context(), puts(entries[1:]...)); !errors.Is(err, registry.ErrRefused) || errors.As(err, &refused) {
			t.Errorf("without a header: %v", err)
		}
		if err := r.target.Write(t.Context(), puts(append(entries, bad)...)); !errors.As(err, &refused) || len(refused) != 1 || !refused.Has("z") {
			t.Errorf("with a bad endpoint: %v", err)
		}
		held, err := r.target.Read(t.Context(), g)
		if err != nil || len(held) != 3 {
			t.Errorf("held: %v, %v", held, err)
		}
	})
}

func TestKeysAreToldAfterTheirHostIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told map[naming.ServiceKey]naming.HostAddress
		r := start(t, mcp.Options{Confirmed: func(keys map[naming.ServiceKey]naming.HostAddress) {
			mu.Lock()
			defer mu.Unlock()
			told = keys
		}})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		time.Sleep(time.Minute)
		mu.Lock()
		if told != nil {
			t.Errorf("told of %v before any istiod knew the host", told)
		}
		mu.Unlock()
		r.connect("", newType)
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		key, err := naming.ParseServiceKey("providers:api.a::")
		if err != nil {
			t.Fatal(err)
		}
		if got := told[key].String(); got != "api.a.k0-0-tri.zk1.bridge.internal:50051" {
			t.Errorf("told of %v", told)
		}
	})
}

func TestEndpointsOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, mcp.Options{})
		s := greeter("api.a", "10.0.0.1", "::1")
		s.Endpoints[0].Zone, s.Endpoints[0].Attributes = "eu-1/eu-1a", registry.Attributes{"version": "v1", "app": "a"}
		s.Endpoints[1].Weight = 0
		r.put(s)
		r.target.SourcesComplete()
		got := decode(t, r.connect("", newType).answers(newType)[0])[0].spec.GetEndpoints()
		port := map[string]uint32{"grpc-tri": 20001}
		want := []*networking.WorkloadEntry{
			{Address: "10.0.0.1", Ports: port, Weight: 100, Locality: "eu-1/eu-1a", Labels: map[string]string{"version": "v1", "app": "a"}},
			{Address: "::1", Ports: port},
		}
		if !slices.EqualFunc(got, want, func(a, b *networking.WorkloadEntry) bool { return proto.Equal(a, b) }) {
			t.Errorf("istiod reads %v, want %v", got, want)
		}
	})
}

func TestAddressesAreDistinctAndStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addresses := func(n int) map[string]string {
			r := start(t, mcp.Options{})
			for i := range n {
				r.put(greeter(fmt.Sprintf("api.s%d", i), "10.0.0.1"))
			}
			r.target.SourcesComplete()
			i := r.connect("", newType)
			byHost := make(map[string]string)
			taken := make(map[string]string)
			for _, m := range decode(t, i.answers(newType)[0]) {
				vip, host := m.spec.GetAddresses()[0], m.spec.GetHosts()[0]
				if other := taken[vip]; other != "" {
					t.Errorf("%s and %s share %s", host, other, vip)
				}
				if !netip.MustParsePrefix("240.64.0.0/12").Contains(netip.MustParseAddr(vip)) {
					t.Errorf("%s is outside the range", vip)
				}
				taken[vip], byHost[host] = host, vip
			}
			return byHost
		}
		first, more := addresses(500), addresses(1500)
		moved := 0
		for host, vip := range first {
			if more[host] != vip {
				moved++
			}
			for other, v := range more {
				if other != host && v == vip {
					t.Errorf("%s was %s and is %s", vip, host, other)
				}
			}
		}
		if moved > 5 {
			t.Errorf("%d of 500 hosts moved, want those alone that collide", moved)
		}
	})
}
