package integration_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// guardedBridge is a bridge that serves a ZooKeeper to istiods under settings of
// imports.
func guardedBridge(t *testing.T, zookeeper, listen, imports string) *harness.Bridge {
	t.Helper()
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: "127.0.0.1:1", mapping: { from: none }, import: { keys: "off", %s } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %s } }
`, imports, zookeeper, listen, harness.Swift))
	bridge.Start(t)
	bridge.AwaitReady(t)
	return bridge
}

// awaitRefused waits until the bridge reported a client that was refused, in
// its log and in its metrics.
func awaitRefused(t *testing.T, bridge *harness.Bridge, reason, setting string) {
	t.Helper()
	harness.Eventually(t, soon, "a client is refused: "+reason, func() error {
		for line := range strings.Lines(bridge.Log()) {
			if strings.Contains(line, "client refused") && strings.Contains(line, "reason="+reason+" ") {
				if !strings.Contains(line, "setting=registries.mesh.istiod.import."+setting+" ") {
					return fmt.Errorf("the setting is another: %s", line)
				}
				for m := range strings.Lines(bridge.Metrics(t)) {
					if strings.HasPrefix(m, "xdsbridge_mcp_refused_total") && strings.Contains(m, `reason="`+reason+`"`) && !strings.HasSuffix(m, " 0\n") {
						return nil
					}
				}
				return errors.New("it was not counted")
			}
		}
		return errors.New("it was not reported")
	})
}

func simpleTLS(t *testing.T, ca harness.CA) map[string]any {
	t.Helper()
	root, err := os.ReadFile(ca.Root)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"mode": "SIMPLE", "caCertificates": string(root)}
}

// TestListen_TLS shows what a real istiod does with
// tlsSettings, and that clients which are refused cost it nothing.
func TestListen_TLS(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	zookeeper := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, zookeeper.Address)
	znodes.Create(t, registered("api.Greeter", 20001), "")
	listen, ca := harness.Address(t), harness.NewCA(t)
	cert, key := ca.Server(t)
	bridge := guardedBridge(t, zookeeper.Address, listen, fmt.Sprintf("tls: { certFile: %s, keyFile: %s }, clients: { networks: [127.0.0.1/32] }", cert, key))
	mesh := harness.NewMesh(t)
	mesh.FromSecure(listen, simpleTLS(t, ca))
	istiod := harness.StartIstiod(t, mesh)
	watch := harness.WatchEndpoints(t, istiod.GRPC, importedCluster("zk", "api.Greeter"))
	watch.AwaitPush(t, soon, "127.0.0.1:20001")

	t.Run("a client of another network is refused", func(t *testing.T) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		conn, err := d.DialContext(t.Context(), "tcp", listen)
		if err == nil {
			if n, _ := io.Copy(io.Discard, conn); n > 0 {
				t.Errorf("it was sent %d bytes", n)
			}
			_ = conn.Close()
		}
		awaitRefused(t, bridge, "network", "clients.networks")
		znodes.Create(t, registered("api.Greeter", 20002), "")
		watch.AwaitPush(t, soon, "127.0.0.1:20001", "127.0.0.1:20002")
	})
	t.Run("an istiod of another mode speaks plaintext and is refused", func(t *testing.T) {
		other := harness.NewMesh(t)
		other.FromSecure(listen, map[string]any{"mode": "ISTIO_MUTUAL"})
		harness.LaunchIstiod(t, other)
		awaitRefused(t, bridge, "plaintext", "tls")
	})
	t.Run("an istiod that does not trust the certificate is reported", func(t *testing.T) {
		other := harness.NewMesh(t)
		other.FromSecure(listen, simpleTLS(t, harness.NewCA(t)))
		harness.LaunchIstiod(t, other)
		awaitRefused(t, bridge, "by-client", "tls.certFile")
	})
	t.Run("a certificate that was replaced is used without a restart", func(t *testing.T) {
		next := harness.NewCA(t)
		nextCert, nextKey := next.Server(t)
		for from, to := range map[string]string{nextCert: cert, nextKey: key} {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		renewed := harness.NewMesh(t)
		renewed.FromSecure(listen, simpleTLS(t, next))
		late := harness.StartIstiod(t, renewed)
		harness.WatchEndpoints(t, late.GRPC, importedCluster("zk", "api.Greeter")).AwaitPush(t, soon, "127.0.0.1:20001", "127.0.0.1:20002")
	})
	znodes.Delete(t, registered("api.Greeter", 20001))
	watch.AwaitPush(t, soon, "127.0.0.1:20002")
}

// TestListen_ClientCertificate shows that an istiod, which has none, is
// refused where clients need one, and that a client with one is served.
func TestListen_ClientCertificate(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	zookeeper := harness.StartZooKeeper(t)
	harness.Connect(t, zookeeper.Address).Create(t, registered("api.Greeter", 20001), "")
	listen, ca := harness.Address(t), harness.NewCA(t)
	cert, key := ca.Server(t)
	bridge := guardedBridge(t, zookeeper.Address, listen, fmt.Sprintf(
		"tls: { certFile: %s, keyFile: %s, caFile: %s }, clients: { names: [spiffe://cluster.local/ns/istio-system/sa/istiod] }", cert, key, ca.Root))
	mesh := harness.NewMesh(t)
	mesh.FromSecure(listen, simpleTLS(t, ca))
	harness.LaunchIstiod(t, mesh)
	awaitRefused(t, bridge, "certificate", "tls.caFile")

	if _, err := askAs(t, ca, listen, "default"); err == nil {
		t.Error("a client of another name was served")
	}
	awaitRefused(t, bridge, "name", "clients.names")
	res, err := askAs(t, ca, listen, "istiod")
	if err != nil || len(res.GetResources()) != 1 {
		t.Errorf("a client that shows who it is was sent %d resources: %v", len(res.GetResources()), err)
	}
}

// askAs asks for ServiceEntries with the certificate of a service account.
func askAs(t *testing.T, ca harness.CA, listen, account string) (*discovery.DiscoveryResponse, error) {
	t.Helper()
	own, err := tls.LoadX509KeyPair(ca.Client(t, "istio-system", account))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.ReadFile(ca.Root)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(root)
	conn, err := grpc.NewClient(listen, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: trust, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12,
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&discovery.DiscoveryRequest{TypeUrl: "networking.istio.io/v1/ServiceEntry"}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream.Recv()
}
