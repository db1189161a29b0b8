// Package kubesource has the Kubernetes API as a source tried against a real API
// server. No kubelet and no controller acts in it: tests write what these would.
package kubesource

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"k8s.io/client-go/rest"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubelist"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

const (
	// soon is what may pass on a busy machine until something is seen that lasts
	// milliseconds on an idle one.
	soon = time.Minute

	account = "xds-bridge"
	greeter = registry.Name("greeter.shop.svc.cluster.local:20880")
)

// rules are the rights that the source requires.
const rules = `[{ apiGroups: [""], resources: [services, pods, nodes], verbs: [get, list, watch] },` +
	` { apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch] },` +
	` { apiGroups: [networking.istio.io], resources: [serviceentries, workloadentries], verbs: [get, list, watch] }]`

// cluster is an API server with Istio's kinds, and the namespaces that the tests
// use.
type cluster struct {
	*harness.Kubernetes
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{harness.StartKubernetes(t)}
	c.InstallIstio(t)
	for _, n := range []string{"istio-system", "shop"} {
		c.Namespace(t, n)
	}
	c.ServiceAccount(t, "istio-system", account)
	c.Grant(t, "istio-system", account, "", rules)
	return c
}

// service stores a Service of one port, 20880, with a key.
func (c *cluster) service(t *testing.T, name string) {
	t.Helper()
	c.Store(t, "/api/v1/namespaces/shop/services", name, fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: { name: %[1]s, annotations: { xds-bridge/keys: "providers:api.Greeter:1.0:" } }
spec: { selector: { app: %[1]s }, ports: [{ name: tcp-dubbo, port: 20880, targetPort: 20990 }] }
`, name))
}

// An endpoint is a Pod as its Service's slice has it.
type endpoint struct {
	pod, address              string
	ready, serving, terminate bool
}

func ready(pod, address string) endpoint { return endpoint{pod, address, true, true, false} }

// pods stores Pods and the slice of a Service that has them.
func (c *cluster) pods(t *testing.T, all ...endpoint) {
	t.Helper()
	const service = "greeter"
	var b strings.Builder
	for _, e := range all {
		c.Store(t, "/api/v1/namespaces/shop/pods", e.pod, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: { name: %s, labels: { app: %s, version: v1 } }
spec: { nodeName: node-a, containers: [{ name: app, image: app }] }
status: { phase: Running, podIP: %s, podIPs: [{ ip: %[3]s }], conditions: [{ type: Ready, status: "%t" }] }
`, e.pod, service, e.address, e.ready))
		fmt.Fprintf(&b, "  - { addresses: [%s], conditions: { ready: %t, serving: %t, terminating: %t }, nodeName: node-a, targetRef: { kind: Pod, name: %s, namespace: shop } }\n",
			e.address, e.ready, e.serving, e.terminate, e.pod)
	}
	endpoints := "endpoints:\n" + b.String()
	if len(all) == 0 {
		endpoints = "endpoints: []\n"
	}
	c.Store(t, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", service+"-1", fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: %[1]s-1, labels: { kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: test } }
addressType: IPv4
ports: [{ name: tcp-dubbo, port: 20990, protocol: TCP }]
%s`, service, endpoints))
}

func (c *cluster) node(t *testing.T, name, region, zone string) {
	t.Helper()
	c.Store(t, "/api/v1/nodes", name, fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: { name: %s, labels: { topology.kubernetes.io/region: %s, topology.kubernetes.io/zone: %s } }
`, name, region, zone))
}

// istio stores one of Istio's objects in the namespace shop.
func (c *cluster) istio(t *testing.T, kind, name, spec string) {
	t.Helper()
	plural := map[string]string{"ServiceEntry": "serviceentries", "WorkloadEntry": "workloadentries"}[kind]
	c.Store(t, "/apis/networking.istio.io/v1/namespaces/shop/"+plural, name,
		fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: %s\nmetadata: { name: %s }\n%s\n", kind, name, spec))
}

// kindAt returns where the objects of a kind are, and the version of their API.
func kindAt(kind string) (path, version string) {
	switch kind {
	case "Node":
		return "/api/v1/nodes", "v1"
	case "Pod", "Service":
		return "/api/v1/namespaces/shop/" + strings.ToLower(kind) + "s", "v1"
	case "EndpointSlice":
		return "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", "discovery.k8s.io/v1"
	case "ServiceEntry":
		return "/apis/networking.istio.io/v1/namespaces/shop/serviceentries", "networking.istio.io/v1"
	default:
		return "/apis/networking.istio.io/v1/namespaces/shop/workloadentries", "networking.istio.io/v1"
	}
}

// store stores the objects of a file of testdata in the namespace shop.
func (c *cluster) store(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		path, version := kindAt(object.Kind)
		c.Store(t, path, object.Metadata.Name, "apiVersion: "+version+"\n"+document)
	}
}

// read has a source fill a table until the test ends.
func read(t *testing.T, source registry.Source) *registry.Table {
	t.Helper()
	table := registry.NewTable()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, table) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return table
}

func everything(t *testing.T) mesh.Naming {
	t.Helper()
	all, err := naming.ParsePattern("*")
	if err != nil {
		t.Fatal(err)
	}
	return mesh.Naming{Plain: []naming.Pattern{all}}
}

// byAPI returns a source that reads the API as the account of the bridge.
func (c *cluster) byAPI(t *testing.T, namespaces ...string) (*mesh.Source, *kube.Reader) {
	t.Helper()
	config := &rest.Config{Host: c.URL, BearerToken: c.Token(t, "istio-system", account), TLSClientConfig: rest.TLSClientConfig{CAFile: c.CA}}
	config.Wrap(kubelist.Bound(64 << 20))
	r, err := kube.New(kube.Options{
		Rules:  kube.Rules{Keys: kube.Keys{Annotation: kube.DefaultKeys}, Pods: true, Decoder: mesh.NewDecoder(loopback(), mesh.AcceptMutualTLS)},
		Config: config,
		Istio:  true, Nodes: len(namespaces) == 0, Namespaces: namespaces,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := mesh.New(mesh.Options{Clusters: r, Naming: everything(t)})
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

// offered returns the addresses that a table offers of a service, in order.
func offered(table *registry.Table, name registry.Name) string {
	s := table.Get(name)
	if s == nil {
		return "no service"
	}
	var all []string
	for _, e := range s.Endpoints {
		if e.Health.Offered() {
			all = append(all, e.Address())
		}
	}
	return strings.Join(all, " ")
}

// await waits until the greeter is at these addresses.
func await(t *testing.T, table *registry.Table, want string) {
	t.Helper()
	harness.Eventually(t, soon, fmt.Sprintf("the greeter is at %q", want), func() error {
		if c := table.Certainty(); !c.Synced || c.Stale != nil {
			return fmt.Errorf("synced %v, stale %w", c.Synced, c.Stale)
		}
		if got := offered(table, greeter); got != want {
			return fmt.Errorf("it is at %q", got)
		}
		return nil
	})
}
