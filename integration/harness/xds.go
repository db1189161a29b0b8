package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

	// keysLabel is the label of a node that carries its service keys.
	keysLabel = "DUBBO_GO"
)

// Provider is an application of the mesh that publishes service keys as
// dubbo-go does: in the metadata of the node of its stream to istiod.
type Provider struct {
	owner         testing.TB // which the last connection ends with, whichever subtest makes it
	address, name string
	end           context.CancelFunc
}

// Publish connects to istiod as the application of that name and publishes
// which host address serves each service key, until the test ends or Leave.
func Publish(t testing.TB, address, name string, keys map[string]string) *Provider {
	t.Helper()
	p := &Provider{owner: t, address: address, name: name}
	p.Republish(t, keys)
	return p
}

// Republish publishes other keys instead of those before. istiod reads a node
// once per stream, so this is a new connection, made before the old one ends.
func (p *Provider) Republish(t testing.TB, keys map[string]string) {
	t.Helper()
	text, err := json.Marshal(keys)
	must(t, err)
	before := p.end
	metadata, err := structpb.NewStruct(map[string]any{
		"CLUSTER_ID": "Kubernetes",
		"LABELS":     map[string]any{keysLabel: string(text)},
	})
	must(t, err)
	node := &corev3.Node{Id: "sidecar~127.0.0.1~" + p.name + ".shop~shop.svc.cluster.local", UserAgentName: "gRPC Go", Metadata: metadata}
	s := dial(p.owner, p.address)
	p.end = s.end
	must(t, s.stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: clusterType, ResourceNames: []string{"*"}}))
	go s.acknowledge(node)
	if before != nil {
		before()
	}
}

// Leave ends the connection, as an application that was killed does.
func (p *Provider) Leave() { p.end() }

// EndpointsWatch records which endpoints istiod pushed for a cluster, and when.
type EndpointsWatch struct {
	mu    sync.Mutex
	seen  []sighting
	names []string
}

// WatchEndpoints watches the endpoints of a cluster over a stream of its own.
func WatchEndpoints(t testing.TB, address, cluster string) *EndpointsWatch {
	t.Helper()
	return WatchEndpointsAs(t, address, "router", cluster)
}

// WatchEndpointsAs is WatchEndpoints for a node of a type, sidecar or router.
func WatchEndpointsAs(t testing.TB, address, nodeType, cluster string) *EndpointsWatch {
	t.Helper()
	w := &EndpointsWatch{names: []string{cluster}}
	node := &corev3.Node{Id: nodeType + "~127.0.0.1~watch.istio-system~istio-system.svc.cluster.local"}
	s := dial(t, address)
	must(t, s.stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: endpointType, ResourceNames: w.names}))
	s.names, s.see = w.names, w.observe
	go s.acknowledge(node)
	return w
}

// AwaitPush waits until istiod pushed exactly these addresses, and returns when
// it first did so.
func (w *EndpointsWatch) AwaitPush(t testing.TB, within time.Duration, addresses ...string) time.Time {
	t.Helper()
	slices.Sort(addresses)
	var at time.Time
	Eventually(t, within, "istiod pushes "+fmt.Sprint(addresses), func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.seen) == 0 {
			return fmt.Errorf("nothing pushed for %v", w.names)
		}
		last := w.seen[len(w.seen)-1]
		at = last.at
		return Same(last.names, addresses)
	})
	return at
}

// Pushes returns how many different answers there were.
func (w *EndpointsWatch) Pushes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

// Endpoints returns how many endpoints the last answer had, 0 where there was
// none.
func (w *EndpointsWatch) Endpoints() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		return 0
	}
	return len(w.seen[len(w.seen)-1].names)
}

// observe keeps an answer, and of equal answers in a row the first.
func (w *EndpointsWatch) observe(response *discoveryv3.DiscoveryResponse) {
	at := time.Now()
	var names []string
	for _, r := range response.GetResources() {
		var assignment endpointv3.ClusterLoadAssignment
		if err := r.UnmarshalTo(&assignment); err != nil {
			continue // then AwaitPush shows what is missing
		}
		for _, locality := range assignment.GetEndpoints() {
			for _, e := range locality.GetLbEndpoints() {
				a := e.GetEndpoint().GetAddress().GetSocketAddress()
				names = append(names, net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue()))))
			}
		}
	}
	slices.Sort(names)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.seen); n == 0 || !slices.Equal(w.seen[n-1].names, names) {
		w.seen = append(w.seen, sighting{at, names})
	}
}

// adsStream is a state of the world stream for one type.
type adsStream struct {
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	end    context.CancelFunc
	names  []string
	see    func(*discoveryv3.DiscoveryResponse)
}

func dial(t testing.TB, address string) *adsStream {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	end := sync.OnceFunc(func() {
		cancel()
		_ = conn.Close() // nothing is lost with it
	})
	t.Cleanup(end)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	must(t, err)
	return &adsStream{stream: stream, end: end, names: []string{"*"}, see: func(*discoveryv3.DiscoveryResponse) {}}
}

// acknowledge accepts every answer until the stream ends.
func (s *adsStream) acknowledge(node *corev3.Node) {
	for {
		response, err := s.stream.Recv()
		if err != nil {
			return
		}
		s.see(response)
		err = s.stream.Send(&discoveryv3.DiscoveryRequest{
			Node: node, TypeUrl: response.GetTypeUrl(), ResourceNames: s.names,
			VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce(),
		})
		if err != nil {
			return
		}
	}
}

// Stall asks a server for ServiceEntries as istiod does and never reads the
// answers, until the test ends.
func Stall(t testing.TB, address string) {
	t.Helper()
	s := dial(t, address)
	node := &corev3.Node{Id: "sidecar~127.0.0.1~stalled.istio-system~istio-system.svc.cluster.local"}
	must(t, s.stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: "networking.istio.io/v1/ServiceEntry"}))
}
