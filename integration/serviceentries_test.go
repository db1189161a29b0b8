package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
)

// greeterHost is what a service that providers register is called in the mesh.
func greeterHost() string {
	return naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}.Of(naming.MeshName{Name: "greeter", Protocol: "grpc"})
}

// TestServiceEntries has istiod read what providers register in ZooKeeper from
// objects that a bridge keeps, next to those of others.
func TestServiceEntries(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	t.Run("in a directory", func(t *testing.T) {
		t.Parallel()
		mesh := harness.NewMesh(t)
		mesh.Apply(t, harness.Service{Host: "other.shop.svc.cluster.local", Port: 80, Endpoints: harness.Local(1)})
		// Records are in such files. Had istiod read one, it would keep what it had of all.
		if err := os.WriteFile(filepath.Join(mesh.Dir(), ".xds-bridge.000000.guard"), []byte("{\"no YAML: [\n\t"), 0o600); err != nil {
			t.Fatal(err)
		}
		testServiceEntries(t, mesh, fmt.Sprintf("import: { directory: %q, subsetLabel: version }", mesh.Dir()), func() string {
			file, err := os.Stat(filepath.Join(mesh.Dir(), greeterHost()+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			return file.ModTime().String()
		})
		if _, err := os.Stat(filepath.Join(mesh.Dir(), "other.shop.svc.cluster.local.yaml")); err != nil {
			t.Errorf("a file of another: %v", err)
		}
	})
	t.Run("by the API, with the rights of the Role", func(t *testing.T) {
		t.Parallel()
		const namespace, other = "/apis/networking.istio.io/v1/namespaces/xds-bridge/serviceentries", "other.shop"
		k := harness.StartKubernetes(t)
		k.InstallIstio(t)
		k.Namespace(t, "istio-system")
		k.ServiceAccount(t, "istio-system", "xds-bridge")
		applyRoles(t, k)
		k.Store(t, namespace, other, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: { name: other.shop }\nspec: { hosts: [other.shop], resolution: DNS, ports: [{ number: 80, name: http }] }\n")
		mesh := harness.NewMesh(t)
		mesh.In(t, k)
		kubeconfig := k.Kubeconfig(t, k.Token(t, "istio-system", "xds-bridge"))
		testServiceEntries(t, mesh, fmt.Sprintf("kubeconfig: %q, import: { subsetLabel: version }", kubeconfig), func() string {
			var object struct {
				Metadata struct {
					UID             string `json:"uid"`
					ResourceVersion string `json:"resourceVersion"`
				} `json:"metadata"`
			}
			if err := json.Unmarshal([]byte(k.Do(t, http.MethodGet, namespace+"/"+greeterHost(), "")), &object); err != nil {
				t.Fatal(err)
			}
			return object.Metadata.UID + " " + object.Metadata.ResourceVersion
		})
		k.Do(t, http.MethodGet, namespace+"/"+other, "")
	})
}

// applyRoles makes the namespace and the rights that deploy has for an import with
// subsets.
func applyRoles(t *testing.T, k *harness.Kubernetes) {
	t.Helper()
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/xds-bridge/"
	var documents []string
	for _, file := range []string{"kubernetes-import.yaml", "kubernetes-import-subsets.yaml"} {
		text, err := os.ReadFile(filepath.Join(harness.Root(t), "deploy", file))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, strings.Split(string(text), "\n---\n")...)
	}
	for i, path := range []string{
		"/api/v1/namespaces/xds-bridge", rbac + "roles/xds-bridge-import", rbac + "rolebindings/xds-bridge-import",
		rbac + "roles/xds-bridge-import-subsets", rbac + "rolebindings/xds-bridge-import-subsets",
	} {
		if status, answer := k.Apply(t, path, documents[i]); status >= http.StatusMultipleChoices {
			t.Fatalf("%s: status %d: %s", path, status, answer)
		}
	}
}

// testServiceEntries registers and withdraws endpoints, and expects that an istiod
// sees that, and that a restart of the bridge writes nothing.
func testServiceEntries(t *testing.T, mesh *harness.Mesh, settings string, version func() string) {
	t.Helper()
	zookeeper := harness.StartZooKeeper(t)
	znodes := harness.Connect(t, zookeeper.Address)
	path := func(port int) string { return fmt.Sprintf("/microservices/greeter/%d", port) }
	register := func(port int, version string) {
		znodes.Create(t, path(port), fmt.Sprintf(`{"id":"%d","name":"greeter","version":%q,"endpoints":["grpc://10.0.0.1:%[1]d"]}`, port, version))
	}
	register(9001, "v1")
	istiod := harness.StartIstiod(t, mesh)
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { kubernetes: { %s } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
bridges: [{ name: zk-to-mesh, from: zk, to: mesh, formats: [kratos], guard: { %s } }]
`, settings, zookeeper.Address, harness.Swift))
	bridge.Start(t)
	bridge.AwaitReady(t)
	endpoints := harness.WatchEndpoints(t, istiod.GRPC, "outbound|50051||"+greeterHost())
	endpoints.AwaitPush(t, 30*time.Second, "10.0.0.1:9001")
	register(9002, "v2.0")
	endpoints.AwaitPush(t, 30*time.Second, "10.0.0.1:9001", "10.0.0.1:9002")
	subset := harness.WatchEndpoints(t, istiod.GRPC, "outbound|50051|v2-0|"+greeterHost())
	subset.AwaitPush(t, 30*time.Second, "10.0.0.1:9002")
	znodes.Delete(t, path(9001))
	endpoints.AwaitPush(t, 30*time.Second, "10.0.0.1:9002")

	before := version()
	bridge.Kill()
	<-bridge.Exited()
	bridge.Start(t)
	bridge.AwaitReady(t)
	if after := version(); after != before {
		t.Errorf("a restart wrote what was there: %s, before %s", after, before)
	}
	if code, out, _ := bridge.Do(t, "preflight"); code != 0 {
		t.Errorf("preflight ends with %d:\n%s", code, out)
	}
	znodes.Delete(t, path(9002))
	endpoints.AwaitPush(t, 30*time.Second)
}
