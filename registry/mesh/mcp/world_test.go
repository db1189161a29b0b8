package mcp_test

import (
	"context"
	"errors"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
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
	c := conformance.Change(g, held, want)
	if err := r.target.Write(r.t.Context(), c); err != nil {
		r.t.Fatal(err)
	}
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
	delay time.Duration // to confirm an answer

	mu  sync.Mutex
	got map[string][]*discovery.DiscoveryResponse
	err error
}

// connectStalled is connect for an istiod that stops reading after its first
// answer until the returned function is called.
func (r *rig) connectStalled(types ...string) (*istiod, func()) {
	r.t.Helper()
	stall := make(chan struct{})
	i := r.open(&istiod{stall: stall}, types...)
	return i, func() { close(stall) }
}

func (r *rig) connect(types ...string) *istiod {
	r.t.Helper()
	return r.open(&istiod{}, types...)
}

// silent is connect for an istiod that confirms no answer of a type.
func (r *rig) silent(mute string, types ...string) *istiod {
	r.t.Helper()
	return r.open(&istiod{mute: mute}, append(types, mute)...)
}

func (r *rig) open(i *istiod, types ...string) *istiod {
	r.t.Helper()
	return r.over(r.dial(), i, types...)
}

// over is open on a connection, which may be refused.
func (r *rig) over(conn *grpc.ClientConn, i *istiod, types ...string) *istiod {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		cancel()
		return &istiod{t: r.t, err: err}
	}
	i.t, i.stream, i.cancel, i.got = r.t, stream, cancel, make(map[string][]*discovery.DiscoveryResponse)
	i.node = istiodNode(r.t)
	for n, typeURL := range types {
		req := &discovery.DiscoveryRequest{TypeUrl: typeURL, ResponseNonce: time.Now().String()}
		if n == 0 {
			req.Node = i.node
		}
		if err := stream.Send(req); err != nil && !errors.Is(err, io.EOF) { // ended by the server, as Recv returns
			r.t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); i.receive() }()
	r.t.Cleanup(func() { cancel(); <-done })
	return i
}

func istiodNode(t *testing.T) *corev3.Node {
	t.Helper()
	meta, err := structpb.NewStruct(map[string]any{"GENERATOR": "api", "ISTIO_REVISION": "default"})
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
		time.Sleep(i.delay)
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
