package frameworks_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/xds"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
)

// meshWorld is a ZooKeeper and the mesh of an istiod, with a bridge in each direction.
type meshWorld struct {
	mesh      *harness.Mesh
	istiod    *harness.Istiod
	zookeeper string
	znodes    *harness.Znodes
}

func newMeshWorld(t *testing.T) *meshWorld {
	t.Helper()
	zookeeper := harness.StartZooKeeper(t)
	w := &meshWorld{mesh: harness.NewMesh(t), zookeeper: zookeeper.Address, znodes: harness.Connect(t, zookeeper.Address)}
	listen, address, debug := harness.Address(t), harness.Address(t), harness.Address(t)
	w.mesh.From(listen)
	w.mesh.WithoutMutualTLS()
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 200ms } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [spring-cloud, kratos, dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %[5]s } }
  - name: mesh-to-zk
    from: mesh
    to: zk
    formats: [{ format: spring-cloud, protocol: http }, kratos]
    names: [{ host: web.shop.svc.cluster.local, service: sc-of-the-mesh }, { host: rpc.shop.svc.cluster.local, service: kratos-of-the-mesh }]
    select: { allow: [127.0.0.0/8] }
    guard: { %[5]s }
`, address, debug, zookeeper.Address, listen, harness.Swift))
	bridge.Start(t)
	harness.Eventually(t, soon, "the bridge listens for istiod", func() error { return harness.Listens(t, listen) })
	w.istiod = harness.StartIstiodAt(t, w.mesh, address, debug)
	bridge.AwaitReady(t)
	return w
}

// host is what the mesh calls something of the registry.
func (*meshWorld) host(n naming.MeshName) string {
	return naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}.Of(n)
}

// TestFrameworks_Mesh: what a framework registers in ZooKeeper is
// called by clients that know only istiod, and what the mesh has by
// frameworks that know only ZooKeeper.
func TestFrameworks_Mesh(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newMeshWorld(t)
	spring := harness.StartSpring(t)

	t.Run("an Envoy calls a provider of Spring Cloud", func(t *testing.T) {
		provider := spring.Start(t, "sc-in-zk", harness.SpringAtZooKeeper(w.zookeeper)...)
		envoy := harness.StartEnvoy(t, w.istiod, harness.EnvoyOptions{Type: "sidecar", Routes: "80"})
		harness.Eventually(t, soon, "its page through Envoy", func() error {
			page, err := envoy.Get(t, w.host(naming.MeshName{Name: "sc-in-zk", Protocol: "http"}))
			if err != nil {
				return err
			}
			return harness.Same(page, provider.Hello())
		})
	})
	t.Run("proxyless gRPC calls a provider of Kratos", func(t *testing.T) {
		kratosProvider(t, "kratos-in-zk", zooKratos{t, w.znodes})
		conn := w.proxyless(t, w.host(naming.MeshName{Name: "kratos-in-zk", Protocol: "grpc"}))
		eventually(t, "its health", func(ctx context.Context) error {
			answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
			if err != nil {
				return err
			}
			return harness.Same(answer.GetStatus(), healthpb.HealthCheckResponse_SERVING)
		})
	})
	t.Run("proxyless gRPC calls a provider of Java Dubbo", func(t *testing.T) {
		port := harness.StartDubbo(t).Provide(t, "tri", "host="+harness.OwnIP(t), "registry=zookeeper://"+w.zookeeper)
		key := naming.ServiceKey{Category: naming.Providers, Interface: harness.DubboInterface}
		conn := w.proxyless(t, w.host(naming.MeshName{Key: key, Protocol: "tri"}))
		eventually(t, "its greeting", func(ctx context.Context) error {
			answer, err := sayHello(ctx, conn, "bob")
			if err != nil {
				return err
			}
			return harness.Same(answer, fmt.Sprintf("hello bob from %d", port))
		})
	})
	t.Run("Spring Cloud calls what the mesh has", func(t *testing.T) {
		w.provide(t, "web.shop.svc.cluster.local", webServer(t, "hello from the mesh"))
		consumer := spring.Start(t, "sc-consumer", harness.SpringAtZooKeeper(w.zookeeper)...)
		harness.Eventually(t, soon, "the mesh's page", func() error {
			page, err := consumer.Call(t, "sc-of-the-mesh")
			if err != nil {
				return err
			}
			return harness.Same(page, "hello from the mesh")
		})
	})
	t.Run("Kratos calls what the mesh has", func(t *testing.T) {
		w.provide(t, "rpc.shop.svc.cluster.local", grpcServer(t))
		kratosCallGRPC(t, "kratos-of-the-mesh", zooKratos{t, w.znodes})
	})
}

// provide puts a service with one endpoint into the mesh.
func (w *meshWorld) provide(t *testing.T, host, address string) {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	w.mesh.Apply(t, harness.Service{Host: host, Port: 8080, Endpoints: harness.Local(port)})
}

// proxyless connects as a proxyless gRPC client of the mesh does.
func (w *meshWorld) proxyless(t *testing.T, host string) *grpc.ClientConn {
	t.Helper()
	builder, err := xds.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "sidecar~127.0.0.1~grpc-client.shop~shop.svc.cluster.local",
			"metadata": {"GENERATOR": "grpc", "NAMESPACE": "shop", "CLUSTER_ID": "Kubernetes"}}
	}`, w.istiod.GRPC))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+host+":50051", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(builder))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// webServer starts an http server with one page.
func webServer(t *testing.T, page string) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
