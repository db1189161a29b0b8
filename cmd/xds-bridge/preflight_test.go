package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/internal/fake/kubernetes"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/internal/porttest"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
)

// A running bridge holds its port, which is as it should be.
// A registry that is away in both roles is explained once.
func TestPreflight_SameFailure(t *testing.T) {
	t.Parallel()
	const refused, fix = "dial tcp 10.0.0.1:2181: connect: connection refused", "check zookeeper.servers"
	away := func(registry string, role preflight.Role, detail string) preflight.Finding {
		return preflight.Finding{Registry: registry, Role: role, Check: "reachable", Outcome: preflight.Failed, Detail: detail, Fix: fix, Unreachable: true}
	}
	var out strings.Builder
	printFindings(&cli{terminal: &terminal{out: &out, color: "never"}}, []preflight.Finding{
		away("zk", preflight.RoleSource, "list /dubbo: "+refused), away("zk", preflight.RoleTarget, refused), away("other", preflight.RoleTarget, refused),
	})
	const want = "source zk\n  × reachable: list /dubbo: " + refused + "\n      fix: " + fix + "\n" +
		"target zk\n  × reachable: as for source zk\n" +
		"target other\n  × reachable: " + refused + "\n      fix: " + fix + "\n" +
		"0 passed, 0 need attention, 2 must be corrected\n"
	if out.String() != want {
		t.Errorf("printed\n%s, want\n%s", &out, want)
	}
}

func TestPreflight_PortInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := porttest.Address(t)
	file := w.importConfig(at, "")
	do(t, "preflight", "-f", file).want(t, exitOK, "√ listen: "+at+" is free", "√ configSources: write address: xds://"+at)
	w.start(file)
	listening(t, at)
	do(t, "preflight", "-f", file).want(t, exitOK, "√ listen: "+at+" is held by the running bridge of owner shop")

	others := w.file("others.yaml", strings.Replace(w.text(file), "owner: shop", "owner: other", 1))
	do(t, "preflight", "-f", others).want(t, exitFindings, "× listen", "address already in use", "stop the other process that holds the port")
}

// What is served depends on an istiod, which starts after the bridge.
func TestPreflight_Istiod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := porttest.Address(t)
	file := w.importConfig(at, "")
	do(t, "preflight", "-f", file).want(t, exitOK, "√ istiod: "+w.xds+" is reachable")
	nobody := strings.Replace(w.text(file), w.xds, porttest.Address(t), 1)
	do(t, "preflight", "-f", w.file("nobody.yaml", nobody)).want(t, exitOK, "‼ istiod: ", "connection refused", "fix: check istiod.address")
	w.start(file)
	listening(t, at)
	do(t, "preflight", "-f", file).want(t, exitOK, "‼ istiod: no reader")
}

// listening waits until the bridge serves at an address, which it does after its probes.
func listening(t *testing.T, at string) {
	t.Helper()
	eventually(t, "the bridge listens at "+at, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
		return err == nil && conn.Close() == nil
	})
}

// Where there is no istiod, nothing is said of one.
func TestPreflight_DataPlanesAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := porttest.Address(t)
	file := w.file("planes.yaml", strings.Replace(w.text(w.importConfig(at, "")), fmt.Sprintf("address: %q, import: { keys: \"off\"", w.xds), "import: { dataPlanes: true", 1))
	r := do(t, "preflight", "-f", file)
	r.want(t, exitOK, "√ listen: "+at+" is free")
	if strings.Contains(r.out, "configSources") {
		t.Error(r.out)
	}
	w.start(file)
	listening(t, at)
	do(t, "preflight", "-f", file).want(t, exitOK, "‼ data planes: no reader: configure a data plane with this address")
}

// A debug port that is closed is unreachable; one that refuses is not.
func TestPreflight_DebugPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{})
	w.refuse(http.StatusForbidden)
	do(t, "preflight", "-f", file).want(t, exitFindings, "× service keys: ", "HTTP 403")
	w.debug.Close()
	do(t, "preflight", "-f", file).want(t, exitUnreachable, "× service keys: ", "connection refused")
}

// cluster starts an API server and returns it with the kubeconfig file that names it.
func (w *world) cluster() (*kubernetes.Server, string) {
	w.t.Helper()
	cluster := kubernetes.NewServer()
	server := httptest.NewServer(cluster)
	w.t.Cleanup(server.Close)
	return cluster, w.file("kubeconfig", kubernetes.Kubeconfig(server.URL))
}

// Where the debug port refuses, preflight names the sources of keys that would work from here, and
// what the others want.
func TestPreflight_OtherSourcesOfKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster, kubeconfig := w.cluster()
	file := w.config(fileOptions{})
	file = w.file("config.yaml", strings.Replace(w.text(file), "interval: 50ms", fmt.Sprintf("interval: 50ms, kubernetes: { kubeconfig: %q }", kubeconfig), 1))
	w.refuse(http.StatusForbidden)
	if err := cluster.Put("serviceentries", map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
		"metadata": map[string]any{"name": "pay", "namespace": "shop", "annotations": map[string]string{"xds-bridge/keys": "providers:com.shop.Pay::"}},
		"spec":     map[string]any{"hosts": []string{"pay.shop"}, "ports": []any{map[string]any{"number": 20880, "name": "tcp"}}, "resolution": "STATIC"},
	}); err != nil {
		t.Fatal(err)
	}
	do(t, "preflight", "-f", file).want(t, exitFindings, "× service keys: ", "HTTP 403",
		"· alternative: service keys by debug-xds: not yet: istiod answers only over TLS", "fix: set istiod.tls, and port 15012 in istiod.address",
		"· alternative: service keys by api: answers, but has no service key",
		"· alternative: service keys by kubernetes: works, with 1 key: set mapping.from: kubernetes")
	for _, resource := range []string{"services", "endpointslices", "pods", "serviceentries", "workloadentries"} {
		cluster.Refuse(resource, "", http.StatusForbidden, "Forbidden")
	}
	do(t, "preflight", "-f", file).want(t, exitFindings, "× service keys: ", "· alternative: service keys by kubernetes: not from here: ", "allow get, list and watch")
	asked := w.file("asked.yaml", strings.Replace(w.text(file), fmt.Sprintf("from: debug-http, addresses: [%q]", strings.TrimPrefix(w.debug.URL, "http://")), "from: kubernetes", 1))
	do(t, "preflight", "-f", asked).want(t, exitFindings, "× service keys: ", "fix: allow get, list and watch of these objects: apply deploy/kubernetes-source.yaml")
}

// Of a mesh that is read by the API, keys count once everything was read, and what is
// missing is named with the setting that leaves it out, where there is one.
func TestPreflight_KubernetesAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster, kubeconfig := w.cluster()
	file := w.file("config.yaml", fmt.Sprintf(`owner: shop
registries:
  mesh: { kubernetes: { kubeconfig: %q } }
  zk: { zookeeper: { servers: [%q] } }
bridges: [{ name: b, from: mesh, to: zk, formats: [dubbo-interface] }]
`, kubeconfig, w.zkAt))
	do(t, "preflight", "-f", file).want(t, exitOK, "√ service keys: 0 by kubernetes", "‼ service keys: no object has service keys", "fix: add the annotation xds-bridge/keys")
	if err := cluster.Put("serviceentries", map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
		"metadata": map[string]any{"name": "pay", "namespace": "shop", "annotations": map[string]string{"xds-bridge/keys": "providers:com.shop.Pay::"}},
		"spec":     map[string]any{"hosts": []string{"pay.shop"}, "ports": []any{map[string]any{"number": 20880, "name": "tcp"}}, "resolution": "STATIC"},
	}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		do(t, "preflight", "-f", file).want(t, exitOK, "√ service keys: 1 by kubernetes")
	}
	cluster.Refuse("workloadentries", "", http.StatusForbidden, "Forbidden")
	cluster.Refuse("services", "", http.StatusForbidden, "Forbidden")
	r := do(t, "preflight", "-f", file)
	r.want(t, exitFindings, "× read services", "× read workloadentries", "or list istio in source.without")
	if strings.Contains(r.out, "service keys: ") || strings.Count(r.out, "source.without") != 1 {
		t.Error(r.out)
	}
}

// Keys of ServiceEntries that istiod sends need no debug port.
func TestPreflight_APIGenerator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.debug.Close()
	file := w.file("config.yaml", strings.Replace(w.text(w.config(fileOptions{})),
		fmt.Sprintf("from: debug-http, addresses: [%q]", strings.TrimPrefix(w.debug.URL, "http://")), "from: api", 1))
	do(t, "preflight", "-f", file).want(t, exitOK, "√ service keys: 0 by api", "‼ service keys: no object has service keys", "fix: add the annotation xds-bridge/keys")
	body, err := anypb.New(&networking.ServiceEntry{Hosts: []string{"pay.shop"}, Ports: []*networking.ServicePort{{Number: 20880, Name: "tcp"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.mesh.SetConfig("networking.istio.io/v1/ServiceEntry", "shop/pay", &mcpv1.Resource{Body: body, Metadata: &mcpv1.Metadata{
		Name: "shop/pay", Annotations: map[string]string{"xds-bridge/keys": "com.shop.Pay, com.shop.Refund@metrics"},
	}})
	do(t, "preflight", "-f", file).want(t, exitOK, "√ service keys: 1 by api", "‼ service keys: ", "names port \"metrics\", which its host does not have", "fix: correct the annotation")
}

// Whoever else writes keeps run from writing, as does an owner that was changed.
func TestPreflight_TargetOwners(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		alive, earlier, more string
		code                 int
		want                 []string
	}{
		"nobody's":                {want: []string{"√ owner: no other process writes as shop"}},
		"another process's":       {alive: "shop", want: []string{`‼ owner: process 7 on host "another" writes as shop`, "run exits with 2"}},
		"a replica's":             {alive: "shop", more: "replicas: { lease: { zookeeper: zk } }", want: []string{"√ owner: process 7", "which replicas share"}},
		"an earlier owner's":      {earlier: "shpo", code: exitFindings, want: []string{"× owner: the owner was changed", `under owner "shpo"`, "xds-bridge adopt -f /"}},
		"another owner's as well": {earlier: "shpo", alive: "shpo", want: []string{"√ owner: no other process writes as shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			file := w.config(fileOptions{file: tt.more})
			if tt.earlier != "" {
				do(t, "run", "--once", "-f", w.file("before.yaml", strings.Replace(w.text(file), "owner: shop", "owner: "+tt.earlier, 1))).want(t, exitOK)
			}
			if tt.alive != "" {
				w.zk.Delete("/xds-bridge/" + tt.alive + "/alive")
				if err := w.zk.Put("/xds-bridge/"+tt.alive+"/alive", []byte(`{"host":"another","process":7}`)); err != nil {
					t.Fatal(err)
				}
			}
			do(t, "preflight", "-f", file).want(t, tt.code, tt.want...)
		})
	}
}

// The bridge that runs is no other, whoever holds its liveness node.
func TestPreflight_RunningBridge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{})
	w.start(file)
	if err := w.zk.Put("/xds-bridge/shop/alive", []byte(`{"host":"another","process":7}`)); err != nil {
		t.Fatal(err)
	}
	do(t, "preflight", "-f", file).want(t, exitOK, `√ owner: process 7 on host "another", the running bridge`)
}

func TestPreflight_PortHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	do(t, "preflight", "-f", w.importConfig(l.Addr().String(), "")).want(t, exitFindings, "× listen", "address already in use", "is the bridge running")
	w.start(w.importConfig("127.0.0.1:0", ""))
	do(t, "preflight", "-f", w.importConfig(l.Addr().String(), "")).want(t, exitFindings, "× listen", "serves nothing there")
	r := do(t, "preflight", "-f", w.importConfig("192.0.2.1:15031", "")) // of nobody
	r.want(t, exitFindings, "× listen", "an address of this machine", "xds://192.0.2.1:15031")
	if strings.Contains(r.out, "holds the port") {
		t.Error(r.out)
	}
}

func TestPreflight_SourceAndTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.importConfig("127.0.0.1:0", "")
	both := w.file("both.yaml", strings.Replace(w.text(file), "bridges:\n", "bridges:\n  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface] }\n", 1))
	both = w.file("both.yaml", strings.Replace(w.text(both), "import:", "mapping: { from: none }, import:", 1))
	r := do(t, "preflight", "-f", both)
	r.want(t, exitOK, "source zk\n", "target zk\n", "registry zk\n", "source mesh\n", "target mesh\n", "asking mesh, zk\n")
	var all []preflight.Finding
	if err := json.Unmarshal([]byte(do(t, "preflight", "-o", "json", "-f", both).out), &all); err != nil {
		t.Fatal(err)
	}
	reachable := make(map[string]int)
	for _, f := range all {
		if f.Check == "reachable" {
			reachable[string(f.Role)+" "+f.Registry]++
		}
	}
	if len(reachable) != 3 || reachable["source zk"] != 1 || reachable["target zk"] != 1 || reachable["source mesh"] != 1 {
		t.Errorf("%v", reachable)
	}
}

// A parent znode that may not be read is found, though its root may be listed.
func TestPreflight_DeniedParent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.registers("api.Pay", "10.0.0.1:20001")
	w.registers("api.Stock", "10.0.0.2:20001")
	source, target := w.importConfig(porttest.Address(t), ""), w.config(fileOptions{})
	do(t, "preflight", "-f", source).want(t, exitOK, "√ list: 2 parent znodes in the roots of all formats")
	do(t, "preflight", "-f", target).want(t, exitOK, "√ list: the parent znodes of all formats are readable")
	if err := w.zk.SetACL("/dubbo/api.Stock/providers", zkfake.WorldACL(zkfake.PermCreate)); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{source, target} {
		do(t, "preflight", "-f", file).want(t, exitFindings, "× list: refused: 1 of 2 parent znodes may not be read, such as /dubbo/api.Stock/providers", "fix: allow the bridge's user to read")
	}
}
