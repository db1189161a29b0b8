package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// world is a mesh and a ZooKeeper in this process, and a configuration that
// leads from one to the other.
type world struct {
	t     *testing.T
	mesh  *istiodfake.Server
	zk    *zkfake.Server
	debug *httptest.Server
	dir   string
	xds   string // address
	zkAt  string // address

	mu    sync.Mutex
	since time.Time         // when the provider connected
	keys  map[string]string // published service keys, each with its host address
	code  int               // what the debug API answers; 0: 200
}

const (
	orders  = "orders.shop.svc.cluster.local:20880"
	greeter = "greeter.shop.svc.cluster.local:20000"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "xb") //nolint:usetesting // short, since the path of a socket is
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, mesh: istiodfake.NewServer(), zk: zkfake.New(zkfake.Options{}), dir: dir, since: time.Now().Add(-time.Hour), keys: map[string]string{"providers:api.Orders:1.0:": orders}}
	w.offer(orders, "10.0.0.1", "10.0.0.2")
	w.debug = httptest.NewServer(http.HandlerFunc(w.adsz))
	server := grpc.NewServer(istiodfake.ServerOptions()...)
	w.mesh.Register(server)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.xds = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	if w.zkAt, err = w.zk.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
		w.debug.Close()
		_ = w.zk.Close()
		_ = os.RemoveAll(dir)
	})
	return w
}

// offer makes hosts the endpoints of a host address.
func (w *world) offer(address string, hosts ...string) {
	host, port, _ := strings.Cut(address, ":")
	name := "outbound|" + port + "||" + host
	_, rest, _ := strings.Cut(host, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	service, err := structpb.NewStruct(map[string]any{"services": []any{map[string]any{"host": host, "name": host, "namespace": namespace}}})
	if err != nil {
		w.t.Fatal(err)
	}
	eds := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
	load := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	for _, h := range hosts {
		load.Endpoints = append(load.Endpoints, &endpointv3.LocalityLbEndpoints{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: h, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 20880},
				}},
			}}},
		}}})
	}
	w.mesh.Set(&clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name, EdsConfig: eds},
		Metadata:         &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": service}},
	}, load)
}

// publish replaces the published service keys.
func (w *world) publish(keys map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = keys
}

// refuse makes the debug API answer with a code; 0 ends that.
func (w *world) refuse(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.code = code
}

// adsz answers as istiod's debug port does.
func (w *world) adsz(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.code != 0 {
		rw.WriteHeader(w.code)
		return
	}
	if r.URL.Path == "/version" {
		_, _ = rw.Write([]byte("1.30.0-test"))
		return
	}
	keys, err := json.Marshal(w.keys)
	if err != nil {
		panic(err)
	}
	clients := []any{map[string]any{
		"connectionId": "orders-1.shop-1", "connectedAt": w.since, "address": "10.0.0.9:1",
		"metadata": map[string]any{"LABELS": map[string]any{"DUBBO_GO": string(keys)}},
	}}
	for _, c := range w.mesh.Connections() { // the bridge's own
		clients = append(clients, map[string]any{"connectionId": c.ID, "connectedAt": c.ConnectedAt, "address": c.Address})
	}
	_ = json.NewEncoder(rw).Encode(map[string]any{"totalClients": len(clients), "clients": clients})
}

// config writes a configuration and returns its file. More is added to the
// one bridge, mesh and file to the mesh and the file's end.
type fileOptions struct{ bridge, mesh, zk, file string }

func (w *world) config(o fileOptions) string {
	w.t.Helper()
	text := fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 50ms } %s } }
  zk: { zookeeper: { servers: [%q], timeout: 2s %s }, timing: { debounce: 1ms, retryMin: 10ms, retryMax: 100ms } }
bridges:
  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface] %s }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json, level: debug }
%s`, w.xds, strings.TrimPrefix(w.debug.URL, "http://"), o.mesh, w.zkAt, o.zk, o.bridge, w.dir, o.file)
	return w.file("config.yaml", text)
}

func (w *world) file(name, text string) string {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// quick is a guard without rules on times and shares, for tests that are not
// about them.
const quick = ", guard: { settle: 0s, lastEndpoint: 0s, share: 1 }"

// result is what a command line came to.
type result struct {
	code     int
	out, err string
}

// do runs one command line.
func do(t *testing.T, args ...string) result {
	t.Helper()
	return doIn(t, nil, args...)
}

func doIn(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var out, errs buffer
	c := newCLI(&out, &errs, lookup(env), nil)
	code := execute(t.Context(), c, args)
	return result{code, out.String(), errs.String()}
}

// patiently runs a command line that may wait for as long as --timeout lets it, and
// fails as want does. It lets it wait longer until the expected text is said: how long
// a first answer takes depends on the machine.
func patiently(t *testing.T, args []string, code int, parts ...string) result {
	t.Helper()
	for timeout := 2 * time.Second; ; timeout *= 4 {
		r := do(t, append(slices.Clone(args), "--timeout", timeout.String())...)
		if r.lacks(code, parts...) == "" || timeout > time.Minute {
			r.want(t, code, parts...)
			return r
		}
	}
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

// want fails where a command line came to another exit code or did not print
// what it should.
func (r result) want(t *testing.T, code int, parts ...string) {
	t.Helper()
	if lacks := r.lacks(code, parts...); lacks != "" {
		t.Errorf("%s\nout: %s\nerr: %s", lacks, r.out, r.err)
	}
}

// lacks says what is missing; empty: nothing.
func (r result) lacks(code int, parts ...string) string {
	var all []string
	if r.code != code {
		all = append(all, fmt.Sprintf("exit code %d, want %d", r.code, code))
	}
	for _, p := range parts {
		if !strings.Contains(r.out+r.err, p) {
			all = append(all, fmt.Sprintf("does not say %q", p))
		}
	}
	return strings.Join(all, "; ")
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// running is a bridge that runs.
type running struct {
	log       *buffer
	telemetry string
	stop      func() int
}

// start runs the bridge until it listens.
func (w *world) start(file string, args ...string) running {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := running{log: &buffer{}}
	code := make(chan int, 1)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	w.t.Cleanup(func() { signal.Stop(hup) })
	go func() {
		c := newCLI(r.log, r.log, lookup(nil), hup)
		code <- execute(ctx, c, append([]string{"run", "-f", file}, args...))
	}()
	r.stop = sync.OnceValue(func() int { cancel(); return <-code })
	w.t.Cleanup(func() { r.stop() })
	eventually(w.t, "the bridge listens", func() bool {
		for line := range strings.Lines(r.log.String()) {
			var l struct{ Msg, Telemetry string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "listening" {
				r.telemetry = l.Telemetry
				return true
			}
		}
		return false
	})
	return r
}

// probe returns the code and the answer of a probe.
func (r running) probe(t *testing.T, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.telemetry+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body.String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for began := time.Now(); !ok(); began = time.Now() {
		if began.After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(max(5*time.Millisecond, min(4*time.Since(began), 200*time.Millisecond))) // a look uses the processor too
	}
}

// providers returns the nodes of an interface, decoded.
func (w *world) providers(iface string) []string {
	return w.zk.Children("/dubbo/" + iface + "/providers")
}

// touched returns every node under the root with its versions, which show
// whether anybody wrote.
func (w *world) touched() map[string]string {
	out := make(map[string]string)
	for _, p := range w.zk.Paths("/dubbo") {
		n, _ := w.zk.Get(p)
		out[p] = fmt.Sprint(n.Stat.Czxid, n.Stat.Mzxid, n.Stat.Pzxid, n.Stat.Version, n.Stat.Cversion)
	}
	return out
}

func sameNodes(t *testing.T, before, after map[string]string) {
	t.Helper()
	if !maps.Equal(before, after) {
		t.Errorf("nodes were touched:\nbefore %v\nafter  %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
}
