package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

const soon = 20 * time.Second

// vips are addresses that every Linux has.
var vips = netip.MustParsePrefix("127.64.0.0/12")

// bridge is what a bridge serves at an address; start is a process of it.
type bridge struct {
	address string
	codec   *serviceentry.Codec
	ports   map[string]uint16 // in the mesh, by protocol

	access mcp.Access
	rules  dataplane.Rules
	target *mcp.Target
	server *mcp.Server
	stop   func()
}

func newBridge(t *testing.T, access mcp.Access) *bridge {
	t.Helper()
	b := &bridge{address: harness.Address(t), access: access, ports: map[string]uint16{"http": port(t), "tcp": port(t), "grpc": port(t)}}
	var err error
	b.codec, err = serviceentry.New(serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}, Namespace: "xds-bridge",
		Mark: metadata.NewMark("me", "b"), VIPs: vips, Ports: b.ports,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.start(t)
	t.Cleanup(func() { b.stop() })
	return b
}

func port(t *testing.T) uint16 {
	t.Helper()
	return uint16(harness.FreePort(t))
}

// start begins a process, which answers nobody before it has started.
func (b *bridge) start(t *testing.T) {
	t.Helper()
	b.target = mcp.NewTarget(mcp.Options{Owner: metadata.NewMark("me", "b").Owner, VIPs: vips})
	b.server = mcp.NewServer(b.target, mcp.ServerOptions{Access: b.access, DataPlanes: dataplane.NewServer(dataplane.Options{VIPs: vips, Rules: b.rules})})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = b.target.Run(ctx) })
	running.Go(func() {
		if err := b.server.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	b.stop = func() { cancel(); running.Wait() }
}

// put makes addresses all the endpoints of a service, and returns its host and
// its address in the mesh.
func (b *bridge) put(t *testing.T, name, protocol string, addresses ...string) (host string) {
	t.Helper()
	s := &registry.Service{Name: registry.Name(name), Protocol: protocol}
	for _, a := range addresses {
		h, p, _ := net.SplitHostPort(a)
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: h, Port: uint16(n), Weight: 100})
	}
	entries, err := b.codec.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	held, err := b.target.Read(t.Context(), entries[0].Group)
	if err != nil {
		t.Fatal(err)
	}
	c := registry.Change{Group: entries[0].Group, Want: entries}
	old := make(map[string]registry.Stored)
	for _, h := range held {
		old[h.Key] = h
	}
	for _, e := range entries {
		w := registry.Write{New: e}
		if h, ok := old[e.Key]; ok {
			w.Old = &h
			delete(old, e.Key)
		}
		c.Put = append(c.Put, w)
	}
	for _, h := range old {
		c.Delete = append(c.Delete, h)
	}
	if err := b.target.Write(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return entries[0].Group.Name
}

// page is a server of HTTP that answers with its name.
func page(t *testing.T, name string) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// banner is a server of TCP that says its name.
func banner(t *testing.T, name string) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// ask sends a request for a host to an Envoy, with headers by name and value, and returns
// what answers with 200.
func ask(ctx context.Context, client *http.Client, host string, at uint16, headers ...string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", at), http.NoBody)
	if err != nil {
		return "", err
	}
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, text)
	}
	return string(text), err
}

// read connects and returns what is said.
func read(ctx context.Context, address string) (string, error) {
	c, err := (&net.Dialer{Timeout: soon}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	text, err := io.ReadAll(c)
	return string(text), err
}

const node = "sidecar~127.0.0.1~envoy.shop~shop.svc.cluster.local"

func TestEnvoy_OneStream(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(form, func(t *testing.T) { oneStream(t, form) })
	}
}

func oneStream(t *testing.T, form string) {
	t.Helper()
	b := newBridge(t, mcp.Access{})
	web := b.put(t, "web", "http", page(t, "page one"))
	chat := b.put(t, "chat", "tcp", banner(t, "banner one"))
	b.target.SourcesComplete()
	harness.StartDataPlane(t, node, b.address, form)
	client := &http.Client{Timeout: soon}
	await := func(host, want string) time.Duration {
		t.Helper()
		return harness.Eventually(t, soon, want, func() error {
			got, err := ask(t.Context(), client, host, b.ports["http"])
			return errors.Join(err, harness.Same(got, want))
		})
	}
	await(web, "page one")
	at := netip.AddrPortFrom(serviceentry.VIP(vips, chat, 0), b.ports["tcp"]).String()
	harness.Eventually(t, soon, "a banner", func() error {
		got, err := read(t.Context(), at)
		return errors.Join(err, harness.Same(got, "banner one"))
	})
	peers := b.server.Readers()
	if len(peers) != 1 || peers[0].Node != node || !peers[0].DataPlane || peers[0].Types != 4 || peers[0].Refused != "" {
		t.Errorf("%+v", peers)
	}
	b.put(t, "web", "http", page(t, "page two"))
	t.Logf("an endpoint that replaces another, after %s", await(web, "page two"))
	await(b.put(t, "other", "http", page(t, "other page")), "other page")

	// What an Envoy cannot do shows, and goes when it can.
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("0.0.0.0:%d", b.ports["grpc"]))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	b.put(t, "rpc", "grpc", page(t, "nobody"))
	harness.Eventually(t, soon, "the Envoy refuses a listener", func() error {
		p := b.server.Readers()[0]
		if !strings.Contains(p.Refused, "Listener") || !strings.Contains(p.Refused, "cannot bind") {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	await(web, "page two")
}

// TestEnvoy_Rules: Envoy accepts all that is accepted of a file of rules, and does what they
// say; what is refused affects only itself.
func TestEnvoy_Rules(t *testing.T) {
	t.Parallel()
	const (
		web, other = "web.s-http.zk.bridge.internal", "other.s-http.zk.bridge.internal"
		odd        = `[{"uri": {"regex": "/odd/(?i)[0-9a-f]{8}-[^/]+\\.\\pL"}}, {"method": {"regex": "GET|HEAD"}, "headers": {"X": {}, "y": {"regex": ".*"}}},
			{"withoutHeaders": {"a": {"exact": ""}, "b": {"regex": "*"}, "c": {"regex": ".*"}}, "uri": {"exact": ""}}, {"uri": {"prefix": ""}, "ignoreUriCase": true}]`
	)
	rules, refused := dataplane.ParseRules([][]byte{
		fmt.Appendf(nil, `{"kind": "VirtualService", "spec": {"hosts": [%q], "http": [{"match": [{"withoutHeaders": {"stable": {"exact": "yes"}}}], "route": [{"destination": {"host": %q}}]}]}}`, web, other),
		fmt.Appendf(nil, `{"kind": "VirtualService", "spec": {"hosts": [%q], "http": [{"match": %s, "route": [{"destination": {"host": %[1]q}}]}]}}`, other, odd),
		fmt.Appendf(nil, `{"kind": "VirtualService", "spec": {"hosts": [%q], "http": [{"match": [{"uri": {"regex": "(["}}], "route": [{"destination": {"host": %[1]q}}]}]}}`, web),
	})
	if len(refused) != 1 || refused[0].Document != 2 {
		t.Fatalf("refused %v, want the last document", refused)
	}
	b := newBridge(t, mcp.Access{})
	b.stop()
	b.rules = rules
	b.start(t)
	b.put(t, "web", "http", page(t, "page of web"))
	b.put(t, "other", "http", page(t, "page of other"))
	b.target.SourcesComplete()
	harness.StartDataPlane(t, node, b.address, "DELTA_GRPC")
	client := &http.Client{Timeout: soon}
	for want, of := range map[string][]string{"page of other": {web}, "page of web": {web, "stable", "yes"}, "page of other ": {web, "stable", "no"}, "page of other  ": {other}} {
		harness.Eventually(t, soon, want, func() error {
			got, err := ask(t.Context(), client, of[0], b.ports["http"], of[1:]...)
			return errors.Join(err, harness.Same(got, strings.TrimRight(want, " ")))
		})
	}
	if p := b.server.Readers(); len(p) != 1 || p[0].Refused != "" {
		t.Errorf("readers %+v, want one that refuses nothing", p)
	}
}

func TestEnvoy_RestartUnderLoad(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	b := newBridge(t, mcp.Access{})
	one, two := page(t, "page"), page(t, "page")
	web := b.put(t, "web", "http", one)
	b.target.SourcesComplete()
	harness.StartDataPlane(t, node, b.address, "GRPC")
	client := &http.Client{Timeout: soon}
	harness.Eventually(t, soon, "a page", func() error {
		_, err := ask(t.Context(), client, web, b.ports["http"])
		return err
	})
	var load sync.WaitGroup
	var calls atomic.Int64
	var ended atomic.Bool
	for range 4 {
		load.Go(func() {
			for !ended.Load() {
				if _, err := ask(t.Context(), client, web, b.ports["http"]); err != nil {
					t.Error(err)
				}
				calls.Add(1)
			}
		})
	}
	for _, endpoints := range [][]string{{one, two}, {two}, {one}} {
		b.stop()
		before := calls.Load()
		harness.Eventually(t, soon, "calls without a bridge", func() error {
			if calls.Load() < before+50 {
				return errors.New("too few")
			}
			return nil
		})
		b.start(t)
		b.put(t, "web", "http", endpoints...)
		b.target.SourcesComplete()
		harness.Eventually(t, soon, "the Envoy confirms what it was sent", func() error {
			if p := b.server.Readers(); len(p) != 1 || p[0].Acked == "" || p[0].Types < 4 {
				return fmt.Errorf("%+v", p)
			}
			return nil
		})
	}
	ended.Store(true)
	load.Wait()
	t.Logf("%d calls", calls.Load())
}
