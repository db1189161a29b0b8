package dataplane_test

import (
	"context"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"go.uber.org/goleak"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routeType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

// rig is a server for data planes behind gRPC in memory.
type rig struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	t      *testing.T
	server *dataplane.Server
	conn   *grpc.ClientConn

	mu     sync.Mutex
	events []dataplane.Event
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, server: dataplane.NewServer(dataplane.Options{})}
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.WaitForHandlers(true))
	discovery.RegisterAggregatedDiscoveryServiceServer(g, r)
	var running sync.WaitGroup
	running.Go(func() { _ = g.Serve(l) })
	conn, err := grpc.NewClient("passthrough:///bridge", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	r.conn = conn
	t.Cleanup(func() { _ = conn.Close(); g.Stop(); running.Wait() })
	return r
}

func (r *rig) StreamAggregatedResources(st discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return r.server.Stream(st.Context(), st, r.observe)
}

func (r *rig) DeltaAggregatedResources(st discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return r.server.Delta(st.Context(), st, r.observe)
}

func (r *rig) observe(e dataplane.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// seen returns the events of a kind.
func (r *rig) seen(kind dataplane.EventKind) []dataplane.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e dataplane.Event) bool { return e.Kind != kind })
}

// put serves entries in addition to others.
func (r *rig) put(entries ...dataplane.Entry) {
	r.t.Helper()
	r.server.Update(entries, nil)
	synctest.Wait()
}

// remove removes an entry.
func (r *rig) remove(name string) {
	r.t.Helper()
	r.server.Update(nil, []string{name})
	synctest.Wait()
}

// entry returns the entry of a host with a port and endpoints.
func entry(host, protocol string, number uint32, addresses ...string) dataplane.Entry {
	spec := &networking.ServiceEntry{
		Hosts: []string{host}, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: number, Name: "main", Protocol: protocol}},
	}
	for _, a := range addresses {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{Address: a, Ports: map[string]uint32{"main": 20001}})
	}
	return dataplane.Entry{Name: "imported/" + host, Spec: spec}
}

// node returns one of a namespace.
func node(namespace string) *corev3.Node {
	return &corev3.Node{Id: "sidecar~10.0.0.9~web." + namespace + "~" + namespace + ".svc.cluster.local"}
}

// world is a client of the state-of-the-world variant, which confirms each response.
type world struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient

	mu     sync.Mutex
	got    []*discovery.DiscoveryResponse
	names  map[string][]string
	refuse map[string]string // why answers of a type are refused
	err    error
}

func (r *rig) world(n *corev3.Node) *world {
	r.t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(r.conn).StreamAggregatedResources(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	w := &world{t: r.t, stream: stream, names: make(map[string][]string), refuse: make(map[string]string)}
	first := &discovery.DiscoveryRequest{Node: n, TypeUrl: clusterType}
	if err := stream.Send(first); err != nil {
		r.t.Fatal(err)
	}
	go w.read()
	synctest.Wait()
	return w
}

func (w *world) read() {
	for {
		res, err := w.stream.Recv()
		w.mu.Lock()
		if w.err = err; err != nil {
			w.mu.Unlock()
			return
		}
		w.got = append(w.got, res)
		ack := &discovery.DiscoveryRequest{TypeUrl: res.GetTypeUrl(), VersionInfo: res.GetVersionInfo(), ResponseNonce: res.GetNonce(), ResourceNames: w.names[res.GetTypeUrl()]}
		if why := w.refuse[res.GetTypeUrl()]; why != "" {
			ack.ErrorDetail = &statuspb.Status{Code: 3, Message: why}
		}
		w.mu.Unlock()
		_ = w.stream.Send(ack)
	}
}

// ask subscribes to names of a type, instead of the earlier ones.
func (w *world) ask(typeURL string, names ...string) {
	w.t.Helper()
	w.mu.Lock()
	w.names[typeURL] = names
	nonce := ""
	for _, res := range w.got {
		if res.GetTypeUrl() == typeURL {
			nonce = res.GetNonce()
		}
	}
	w.mu.Unlock()
	if err := w.stream.Send(&discovery.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names, ResponseNonce: nonce}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// drain returns what came since the last call: the last part of the type and the names.
func (w *world) drain() (answers []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, res := range w.got {
		answers = append(answers, short(res.GetTypeUrl())+": "+resourceNames(w.t, res.GetResources()))
	}
	w.got = w.got[len(w.got):]
	return answers
}

// short returns the last part of a type.
func short(typeURL string) string { return path.Base(strings.ReplaceAll(typeURL, ".", "/")) }

// resourceNames returns the names of resources, by name.
func resourceNames(t *testing.T, all []*anypb.Any) string {
	t.Helper()
	var names []string
	for _, a := range all {
		m, err := a.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, cache.GetResourceName(m))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// differences is a client of the incremental variant, which confirms each response.
type differences struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc
	names  map[string]bool // that a test subscribed to, where it keeps them

	mu       sync.Mutex
	got      []*discovery.DeltaDiscoveryResponse
	nonce    string            // of the last answer
	versions map[string]string // by name
	mute     bool              // nothing is confirmed
	refuse   string
	err      error
}

func (r *rig) differences(n *corev3.Node, first *discovery.DeltaDiscoveryRequest) *differences {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(r.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	d := &differences{t: r.t, stream: stream, cancel: cancel, versions: make(map[string]string)}
	first.Node = n
	d.send(first)
	go d.read()
	synctest.Wait()
	return d
}

func (d *differences) send(r *discovery.DeltaDiscoveryRequest) {
	d.t.Helper()
	if err := d.stream.Send(r); err != nil {
		d.t.Fatal(err)
	}
	synctest.Wait()
}

func (d *differences) read() {
	for {
		res, err := d.stream.Recv()
		d.mu.Lock()
		if d.err = err; err != nil {
			d.mu.Unlock()
			return
		}
		d.got, d.nonce = append(d.got, res), res.GetNonce()
		for _, r := range res.GetResources() {
			d.versions[r.GetName()] = r.GetVersion()
		}
		for _, name := range res.GetRemovedResources() {
			delete(d.versions, name)
		}
		ack := &discovery.DeltaDiscoveryRequest{TypeUrl: res.GetTypeUrl(), ResponseNonce: res.GetNonce()}
		if d.refuse != "" {
			ack.ErrorDetail = &statuspb.Status{Code: 3, Message: d.refuse}
		}
		mute := d.mute
		d.mu.Unlock()
		if !mute {
			_ = d.stream.Send(ack)
		}
	}
}

// has returns the versions of its resources.
func (d *differences) has() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.versions)
}

// drain returns what came since the last call.
func (d *differences) drain() (answers []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, res := range d.got {
		var names []string
		for _, r := range res.GetResources() {
			names = append(names, r.GetName())
		}
		for _, name := range res.GetRemovedResources() {
			names = append(names, "-"+name)
		}
		slices.Sort(names)
		answers = append(answers, short(res.GetTypeUrl())+": "+strings.Join(names, " "))
	}
	d.got = nil
	return answers
}

// failed returns how the stream ended; nil: it did not.
func (d *differences) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func subscribe(typeURL string, names ...string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names}
}
