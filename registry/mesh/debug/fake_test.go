package debug_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/internal/fake/pipe"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

const (
	keyA = "providers:api.A::"
	keyB = "providers:api.B::"
	oneA = `{"` + keyA + `":"a.shop.svc.cluster.local:20000"}`
	oneB = `{"` + keyB + `":"b.shop.svc.cluster.local:20000"}`
)

// fakeIstiod answers the debug API by istiod's rules.
type fakeIstiod struct {
	mu       sync.Mutex
	clients  map[string]istiodfake.Client
	counter  int
	requests []string
	answer   func(w http.ResponseWriter, r *http.Request) bool // answers itself and says so, or nil
}

func newIstiod() *fakeIstiod { return &fakeIstiod{clients: make(map[string]istiodfake.Client)} }

// connect adds a connection of a node that publishes a value, and returns its
// id.
func (f *fakeIstiod) connect(node, value string) string {
	return f.connectWith(node, map[string]any{"LABELS": map[string]any{"DUBBO_GO": value, "app": "x"}, "CLUSTER_ID": "Kubernetes"})
}

func (f *fakeIstiod) connectWith(node string, metadata map[string]any) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counter++
	id := fmt.Sprintf("%s-%d", node, f.counter)
	f.clients[id] = istiodfake.Client{ID: id, ConnectedAt: time.Now(), Address: "10.0.0.1:1", Metadata: metadata}
	return id
}

// watching has a connection watch so many services, as a sidecar does.
func (f *fakeIstiod) watching(id string, services int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clients[id]
	c.Watches = map[string][]string{"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment": slices.Repeat(
		[]string{"outbound|8080||service-0000.namespace-00.svc.cluster.local"}, services)}
	f.clients[id] = c
}

func (f *fakeIstiod) disconnect(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		delete(f.clients, id)
	}
}

// restart closes all connections and restarts their counter.
func (f *fakeIstiod) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.clients)
	f.counter = 0
}

// misbehave lets answer replace the handler; nil ends that.
func (f *fakeIstiod) misbehave(answer func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// takeRequests returns the requests since the last call.
func (f *fakeIstiod) takeRequests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.requests = nil }()
	return f.requests
}

func (f *fakeIstiod) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.URL.RequestURI())
	answer := f.answer
	f.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	istiodfake.ServeDebug(w, r, f.list())
}

// list returns the clients in the order of their IDs.
func (f *fakeIstiod) list() []istiodfake.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.clients), func(a, b istiodfake.Client) int { return strings.Compare(a.ID, b.ID) })
}

// network is an in-memory network of HTTP servers.
type network struct {
	mu      sync.Mutex
	servers map[string]*httpListener
	dials   []string
}

func newNetwork() *network { return &network{servers: make(map[string]*httpListener)} }

func (n *network) serve(t *testing.T, address string, handler http.Handler) {
	t.Helper()
	server := &http.Server{Handler: handler}
	l := &httpListener{pipe.Listen(), server}
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = server.Close()
		group.Wait()
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[address] = l
}

// An httpListener is where a server of HTTP answers.
type httpListener struct {
	*pipe.Listener

	server *http.Server
}

// cut lets no question be answered at an address any more.
func (n *network) cut(address string) {
	n.mu.Lock()
	l := n.servers[address]
	delete(n.servers, address)
	n.mu.Unlock()
	if l != nil {
		_ = l.server.Close()
	}
}

func (n *network) unplug(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.servers, address)
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dials = append(n.dials, address)
	l := n.servers[address]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	return l.Dial(ctx)
}

// watcher runs a reader and records its snapshots.
type watcher struct {
	mu       sync.Mutex
	last     debug.Snapshot
	reported int
}

// watch runs a reader until the test ends.
func watch(t *testing.T, o debug.Options) *watcher {
	t.Helper()
	r, err := debug.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := r.Run(ctx, w.changed); err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return w
}

func (w *watcher) changed(s debug.Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.reported = s, w.reported+1
}

func (w *watcher) snapshot() debug.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *watcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reported
}

// text prints the mapping, keys without what they share.
func (w *watcher) text() string {
	var lines []string
	for key, addresses := range w.snapshot().Mapping.All() {
		words := []string{strings.TrimSuffix(strings.TrimPrefix(key.String(), "providers:api."), "::")}
		for _, a := range addresses {
			words = append(words, strings.Replace(a.String(), ".shop.svc.cluster.local:20000", "", 1))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, ", ")
}

// in lets virtual time pass, and everything that happens within it.
func in(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func expect(t *testing.T, w *watcher, want string) {
	t.Helper()
	if got := w.text(); got != want {
		t.Errorf("mapping is %q, want %q (%v)", got, want, w.snapshot().Err)
	}
}

func expectCause(t *testing.T, err error, want debug.Cause) {
	t.Helper()
	e, ok := errors.AsType[*debug.Error](err)
	switch {
	case want == "" && err == nil:
	case !ok:
		t.Errorf("error is %v, want %s", err, want)
	case e.Cause != want:
		t.Errorf("cause is %s, want %s: %v", e.Cause, want, err)
	case !strings.Contains(err.Error(), want.Remedy()) || want.Remedy() == "":
		t.Errorf("error %v, want its remedy", err)
	case strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }):
		t.Errorf("error %q, want one printable line", err.Error())
	}
}

func mustKey(t *testing.T, s string) naming.ServiceKey {
	t.Helper()
	key, err := naming.ParseServiceKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// mesh is a network with one istiod on loopback, and the options to read it.
func mesh(t *testing.T, replicas ...string) (*network, []*fakeIstiod, debug.Options) {
	t.Helper()
	n := newNetwork()
	var istiods []*fakeIstiod
	for _, replica := range replicas {
		f := newIstiod()
		istiods = append(istiods, f)
		n.serve(t, net.JoinHostPort(replica, "15014"), f)
	}
	return n, istiods, debug.Options{Replicas: debug.Static(replicas...), HTTP: &debug.HTTPOptions{Dial: n.dial}}
}
