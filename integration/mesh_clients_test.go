package integration_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/xds" // makes xds:/// known to gRPC
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// proxylessTarget in the environment makes the test binary a gRPC client: gRPC
// reads its bootstrap as soon as a process starts.
const proxylessTarget = "XDS_BRIDGE_TEST_PROXYLESS_TARGET"

func TestMain(m *testing.M) {
	if target := os.Getenv(proxylessTarget); target != "" {
		if err := callForEver(target); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// callForEver calls who.Who/Am and prints a line for each call.
func callForEver(target string) error {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the process ends with it
	for range time.NewTicker(10 * time.Millisecond).C {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var who wrapperspb.StringValue
		if err := conn.Invoke(ctx, "/who.Who/Am", &emptypb.Empty{}, &who); err != nil {
			fmt.Println("error:", err)
		} else {
			fmt.Println(who.GetValue())
		}
		cancel()
	}
	return nil
}

// proxyless starts a client that calls a host address of the mesh.
func proxyless(t *testing.T, istiod *harness.Istiod, target string) *harness.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bootstrap := fmt.Sprintf(`{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "sidecar~127.0.0.1~grpc-client.shop~shop.svc.cluster.local",
			"metadata": {"GENERATOR": "grpc", "NAMESPACE": "shop", "CLUSTER_ID": "Kubernetes"}}
	}`, istiod.GRPC)
	return harness.Start(t, harness.Command{
		Name: "proxyless", Path: self, Env: []string{"GRPC_XDS_BOOTSTRAP_CONFIG=" + bootstrap, proxylessTarget + "=" + target},
	})
}

// awaitAnswers waits until the last calls were answered by exactly these.
func awaitAnswers(t *testing.T, p *harness.Process, servers ...string) {
	t.Helper()
	const last = 20
	harness.Eventually(t, soon, "answers of "+strings.Join(servers, " "), func() error {
		lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
		return harness.Same(distinct(lines[max(0, len(lines)-last):]), slices.Sorted(slices.Values(servers)))
	})
}

func distinct(all []string) []string {
	set := make(map[string]bool)
	for _, s := range all {
		set[s] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// startWho starts a gRPC server that answers with its address.
func startWho(t *testing.T) (address string, stop func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answer := wrapperspb.String(l.Addr().String())
	am := func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		return answer, read(&emptypb.Empty{})
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "who.Who", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Am", Handler: am}},
	}, struct{}{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until Stop
	}()
	stop = func() { server.Stop(); <-done }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// startWeb starts an HTTP server that answers with its address.
func startWeb(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Context().Value(http.LocalAddrContextKey)) // else the client says
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// provide makes these the addresses of a service of the registry, in one
// change, as the bridge does.
func (m *mcpServer) provide(t *testing.T, s registry.Service, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			t.Fatal(err)
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: host, Port: uint16(number)})
	}
	entries, err := m.codec.Encode(&s)
	if err != nil {
		t.Fatal(err)
	}
	held, err := m.target.Read(t.Context(), entries[0].Group)
	if err != nil {
		t.Fatal(err)
	}
	change := registry.Change{Group: entries[0].Group, Want: entries}
	for _, h := range held {
		if !slices.Contains(entries, h.Entry) {
			change.Delete = append(change.Delete, h)
		}
	}
	for _, e := range entries {
		if !slices.ContainsFunc(held, func(h registry.Stored) bool { return h.Entry == e }) {
			change.Put = append(change.Put, registry.Write{New: e})
		}
	}
	if err := m.target.Write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
}

// withdraw withdraws everything that is held of a service.
func (m *mcpServer) withdraw(t *testing.T, s registry.Service) {
	t.Helper()
	s.Endpoints = []registry.Endpoint{{Host: "127.0.0.1", Port: 1}} // one without has no group
	entries, err := m.codec.Encode(&s)
	if err != nil {
		t.Fatal(err)
	}
	held, err := m.target.Read(t.Context(), entries[0].Group)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.target.Write(t.Context(), registry.Change{Group: entries[0].Group, Delete: held}); err != nil {
		t.Fatal(err)
	}
}

func TestMeshClients(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	greeter := registry.Service{Name: "api.Greeter", Protocol: "tri", Interfaces: []registry.Interface{{Name: "api.Greeter"}}}
	web := registry.Service{Name: "web-shop", Protocol: "http"}
	in := naming.MeshHosts{Registry: "zk1", Suffix: "bridge.internal"}
	greeterHost := in.Of(naming.MeshName{Key: naming.ServiceKey{Category: naming.Providers, Interface: "api.Greeter"}, Protocol: "tri"})
	webHost := in.Of(naming.MeshName{Name: "web-shop", Protocol: "http"})

	one, stopOne := startWho(t)
	two, _ := startWho(t)
	pageOne, pageTwo := startWeb(t), startWeb(t)
	server := startMCP(t)
	server.provide(t, greeter, one, two)
	server.provide(t, web, pageOne, pageTwo)
	server.target.SourcesComplete()
	mesh := harness.NewMesh(t)
	mesh.From(server.address)
	mesh.WithoutMutualTLS()
	istiod := harness.StartIstiod(t, mesh)

	for _, nodeType := range []string{"sidecar", "router"} {
		t.Run("CDS and EDS of a "+nodeType+" show it", func(t *testing.T) {
			for cluster, addresses := range map[string][]string{
				"outbound|50051||" + greeterHost: {one, two},
				"outbound|80||" + webHost:        {pageOne, pageTwo},
			} {
				harness.Eventually(t, soon, "CDS has "+cluster, func() error {
					if got := harness.Clusters(t, istiod.GRPC, nodeType); !slices.Contains(got, cluster) {
						return fmt.Errorf("it has %v", got)
					}
					return nil
				})
				harness.WatchEndpointsAs(t, istiod.GRPC, nodeType, cluster).AwaitPush(t, soon, addresses...)
			}
		})
	}
	t.Run("a proxyless gRPC client calls both, and one that goes costs no call", func(t *testing.T) {
		client := proxyless(t, istiod, "xds:///"+greeterHost+":50051")
		awaitAnswers(t, client, one, two)
		server.provide(t, greeter, two)
		awaitAnswers(t, client, two)
		stopOne()
		awaitAnswers(t, client, two)
		if strings.Contains(client.Log(), "error:") {
			t.Errorf("a call failed: %s", client.Log())
		}
	})
	for name, o := range map[string]harness.EnvoyOptions{
		"an Envoy as sidecar routes HTTP to it by its host name": {Type: "sidecar", Routes: "80"},
		"an Envoy as router routes HTTP to its cluster":          {Type: "router", Cluster: "outbound|80||" + webHost},
	} {
		t.Run(name, func(t *testing.T) {
			server.provide(t, web, pageOne, pageTwo)
			envoy := harness.StartEnvoy(t, istiod, o)
			awaitPages(t, envoy, webHost, pageOne, pageTwo)
			server.provide(t, web, pageTwo)
			awaitPages(t, envoy, webHost, pageTwo)
		})
	}
}

// awaitPages waits until Envoy has the host's pages served by exactly these.
func awaitPages(t *testing.T, e *harness.Envoy, host string, servers ...string) {
	t.Helper()
	harness.Eventually(t, soon, "pages of "+strings.Join(servers, " "), func() error {
		var answers []string
		for range 20 {
			answer, err := e.Get(t, host)
			if err != nil {
				return err
			}
			answers = append(answers, answer)
		}
		return harness.Same(distinct(answers), slices.Sorted(slices.Values(servers)))
	})
}
