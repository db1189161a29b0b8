package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

var _ admin.Loop = (*bridge.Loop)(nil)

// loop is a fake Loop.
type loop struct {
	mu      sync.Mutex
	st      bridge.Status
	stuck   bool
	decided []string
	refuse  error
}

// counts returns the lengths of the lists of a status.
func counts(st bridge.Status) bridge.Counts {
	c := bridge.Counts{Services: len(st.Services), Conflicts: len(st.Conflicts)}
	for _, h := range st.Holds {
		if h.Denied {
			c.Denied, c.DeniedSince = c.Denied+h.Count, h.Since
		} else {
			c.Holds++
		}
	}
	return c
}

func (l *loop) Summary() bridge.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.st
	st.Counts = counts(st)
	st.Services, st.Holds, st.Conflicts = nil, nil, nil
	return st
}

func (l *loop) Alive(ctx context.Context) error {
	l.mu.Lock()
	stuck := l.stuck
	l.mu.Unlock()
	if stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (l *loop) Status() bridge.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.st
	st.Counts = counts(st)
	return st
}

func (l *loop) Approve(_ context.Context, id, _ string) error { return l.decide("approve " + id) }
func (l *loop) Deny(_ context.Context, id, _ string) error    { return l.decide("deny " + id) }

func (l *loop) decide(decision string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided = append(l.decided, decision)
	return l.refuse
}

func (l *loop) set(change func(*loop)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

const greeter = registry.Name("greeter.shop.svc.cluster.local:20000")

func service() *registry.Service {
	return &registry.Service{
		Name: greeter, Protocol: "tri",
		Interfaces: []registry.Interface{{Name: "api.Greeter", Version: "1.0.0"}},
		Endpoints: []registry.Endpoint{
			{Host: "10.0.0.1", Port: 20000, Weight: 100, Health: registry.Healthy},
			{Host: "10.0.0.2", Port: 20000, Health: registry.Draining},
		},
	}
}

func group() registry.Group {
	return registry.Group{Kind: "dubbo-interface", Namespace: "/dubbo", Name: "api.Greeter"}
}

func sourceState() admin.SourceState { return admin.SourceState{} }

func targetState() admin.TargetState { return admin.TargetState{Connected: true} }

// server returns a server without listeners over one source and one loop.
func server(t *testing.T, table *registry.Table, l *loop) *admin.Server {
	t.Helper()
	s, err := admin.New(t.Context(), admin.Options{
		Version: "v0.0.1", Owner: "shop",
		Inputs:  []admin.Input{{Name: "mesh", Kind: "mesh", Table: table, State: sourceState}},
		Targets: []admin.Target{{Name: "zk", Loop: l, State: targetState}},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "# metrics\n") }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func call(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, target, nil)
	r.Host = "127.0.0.1:9901"
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return v
}

func TestProbes(t *testing.T) {
	t.Run("not ready until the source is complete and the target listed, ready for good afterwards", func(t *testing.T) {
		table, l := registry.NewTable(), &loop{}
		probes := server(t, table, l).Telemetry()
		expect := func(code int, text string) {
			t.Helper()
			w := call(probes, "GET", "/readyz?verbose")
			if w.Code != code || !strings.Contains(w.Body.String(), text) {
				t.Fatalf("got %d %s, want %d with %q", w.Code, w.Body, code, text)
			}
		}
		expect(503, "[-]source/mesh failed: no complete snapshot yet\n[-]target/zk failed: not listed yet\n")
		table.Replace(slices.Values([]*registry.Service{service()}))
		expect(503, "[+]source/mesh ok\n[-]target/zk")
		l.set(func(l *loop) { l.st.Listed = true })
		expect(200, "[+]config ok\n[+]source/mesh ok\n[+]target/zk ok\nreadyz check passed\n")

		table.Stale(errors.New("istiod is away"))
		l.set(func(l *loop) { l.st.Listed = false; l.st.LastError = "zookeeper is away" })
		expect(200, "readyz check passed")
		if w := call(probes, "GET", "/readyz"); w.Body.String() != "ok\n" {
			t.Errorf("GET /readyz = %q, want only ok", w.Body)
		}
	})

	t.Run("live fails only for a loop that is silent for a minute, whatever the others do", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &loop{st: bridge.Status{LastError: "zookeeper is away"}}
			s := server(t, registry.NewTable(), l)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.Run(ctx) }()
			code := func(after time.Duration) int {
				time.Sleep(after) // virtual time
				synctest.Wait()
				return call(s.Telemetry(), "GET", "/livez").Code
			}
			if got := code(time.Hour); got != 200 {
				t.Errorf("GET /livez after an hour without registries = %d, want 200", got)
			}
			l.set(func(l *loop) { l.stuck = true })
			if got := code(45 * time.Second); got != 200 {
				t.Errorf("GET /livez of a loop silent for 45 s = %d, want 200", got)
			}
			if got := code(20 * time.Second); got != 503 {
				t.Errorf("GET /livez of a loop silent for 65 s = %d, want 503", got)
			}
			l.set(func(l *loop) { l.stuck = false })
			if got := code(20 * time.Second); got != 200 {
				t.Errorf("GET /livez of a loop that answers again = %d, want 200", got)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})

	t.Run("started once its loops run, whatever its registries do", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &loop{stuck: true}
			probes := server(t, registry.NewTable(), l).Telemetry()
			if w := call(probes, "GET", "/startupz"); w.Code != 503 {
				t.Errorf("GET /startupz before the loop runs = %d, want 503", w.Code)
			}
			l.set(func(l *loop) { l.stuck = false })
			if w := call(probes, "GET", "/startupz"); w.Code != 200 {
				t.Errorf("GET /startupz while the loop runs = %d %s, want 200", w.Code, w.Body)
			}
		})
	})

	t.Run("an error of a registry stays on its line", func(t *testing.T) {
		l := &loop{st: bridge.Status{LastError: "bad\n[+]everything ok\x1b[31m"}}
		w := call(server(t, registry.NewTable(), l).Telemetry(), "GET", "/readyz")
		if strings.Contains(w.Body.String(), "\n[+]everything") || strings.ContainsRune(w.Body.String(), '\x1b') {
			t.Errorf("probe = %q, want text of others escaped", w.Body)
		}
	})
}

func TestStatus(t *testing.T) {
	table := registry.NewTable()
	table.Replace(slices.Values([]*registry.Service{service()}))
	table.Skip("outbound|80||<b>", "not a host <script>")
	table.Unknown("other*", errors.New("403"))
	wrote := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	l := &loop{st: bridge.Status{
		Owner: "shop", Listed: true,
		Bridges: []bridge.BridgeStatus{{Name: "mesh-to-zk", Synced: true}},
		Services: []bridge.ServiceStatus{{
			Bridge: "mesh-to-zk", Service: greeter, Reason: bridge.ReasonHeld, Entries: 2,
			Groups: []registry.Group{group()}, LastWrite: wrote, LastError: "was away",
		}},
		Holds:     []bridge.Hold{{ID: "h1", Bridge: "mesh-to-zk", Groups: []registry.Group{group()}}},
		Conflicts: []bridge.Conflict{{Group: group(), Key: "tri://10.0.0.9:1", Winner: "another"}},
	}}
	api := server(t, table, l).Admin()

	t.Run("the document lists sources, what they skipped, and every loop", func(t *testing.T) {
		w := call(api, "GET", "/api/v1/status")
		d := decode[admin.Document](t, w)
		if !d.Ready || d.InSync || len(d.Sources) != 1 || len(d.Loops) != 1 {
			t.Fatalf("GET /api/v1/status = %s, want ready, not in sync, one source and one loop", w.Body)
		}
		src := d.Sources[0]
		if src.Endpoints["healthy"] != 1 || src.Endpoints["draining"] != 1 || src.Unknown["other*"] != "403" {
			t.Errorf("source = %+v, want two endpoints by health, and other* unknown", src)
		}
		if len(src.Skipped) != 1 || src.Skipped[0].Reason != "not a host <script>" {
			t.Errorf("skipped = %+v, want one with its reason", src.Skipped)
		}
		if strings.Contains(w.Body.String(), "<") {
			t.Error("a name of others is written unescaped")
		}
		if strings.Contains(w.Body.String(), "0001-01-01") {
			t.Errorf("a time that is not known is written: %s", w.Body)
		}
	})

	for query, by := range map[string]string{
		"its host address": string(greeter), "its interface": "api.Greeter", "its service key": "providers:api.Greeter:1.0.0:",
	} {
		t.Run("one service by "+by+": key, hosts, endpoints, owner, last write, last error", func(t *testing.T) {
			why := decode[admin.Why](t, call(api, "GET", "/api/v1/services/"+by))
			if len(why.Sources) != 1 || len(why.Services) != 1 || len(why.Holds) != 1 || len(why.Conflicts) != 1 {
				t.Fatalf("why %s = %+v, want one source, service, hold and conflict", query, why)
			}
			seen, sv := why.Sources[0], why.Services[0]
			if seen.Keys[0] != "providers:api.Greeter:1.0.0:" || seen.Service != greeter || seen.Endpoints[1].Offered {
				t.Errorf("why %s: source = %+v, want its key, its name, and an endpoint that is not offered", query, seen)
			}
			if sv.Owner != "shop" || !sv.LastWrite.Equal(wrote) || sv.LastError != "was away" || sv.Reason != bridge.ReasonHeld {
				t.Errorf("why %s: service = %+v, want held, with owner, last write and last error", query, sv)
			}
		})
	}

	t.Run("a service that its source no longer reports is found by its host, interface and service key", func(t *testing.T) {
		for group, queries := range map[string][]string{
			"api.Gone":                  {"gone.shop.svc.cluster.local:1", "api.Gone", "providers:api.Gone:1.0.0:"},
			"providers:api.Gone:1.0.0:": {"gone.shop.svc.cluster.local:1", "api.Gone", "providers:api.Gone:1.0.0:"},
		} {
			l := &loop{st: bridge.Status{Services: []bridge.ServiceStatus{{
				Service: "gone.shop.svc.cluster.local:1", Reason: bridge.ReasonHeld, Groups: []registry.Group{{Kind: "dubbo-interface", Name: group}},
			}}}}
			api := server(t, registry.NewTable(), l).Admin()
			for _, query := range queries {
				if why := decode[admin.Why](t, call(api, "GET", "/api/v1/services/"+query)); len(why.Services) != 1 || why.Services[0].Reason != bridge.ReasonHeld {
					t.Errorf("why %s of group %s = %+v, want one held service", query, group, why)
				}
			}
			for _, query := range []string{"api.Other", "providers:api.Other::", "providers:api.Gone2:1.0.0:"} {
				if w := call(api, "GET", "/api/v1/services/"+query); w.Code != 404 {
					t.Errorf("why %s of group %s = %d, want 404", query, group, w.Code)
				}
			}
		}
	})

	t.Run("an unknown service is not found", func(t *testing.T) {
		w := call(api, "GET", "/api/v1/services/none")
		if w.Code != 404 || !strings.Contains(decode[admin.Problem](t, w).Error, "fqdn:port") {
			t.Errorf("why of an unknown service = %d %s, want 404 with how to name one", w.Code, w.Body)
		}
	})

	t.Run("a loop that does not answer is an error in the document, not a hang", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := server(t, table, &loop{stuck: true}).Document(t.Context())
			if d.InSync || d.Ready || d.Loops[0].LastError == "" || d.Loops[0].Target != "zk" {
				t.Errorf("status of a loop that does not answer = %+v, want that as its last error", d)
			}
		})
	})
}

// TestStatus_SilentLoops shows that many silent loops delay an answer no longer than one,
// and that a hold of another loop can still be approved.
func TestStatus_SilentLoops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := admin.Options{Owner: "shop"}
		for range 10 {
			o.Targets = append(o.Targets, admin.Target{Name: "silent", Loop: &loop{stuck: true}, State: targetState})
		}
		lively := &loop{st: bridge.Status{Holds: []bridge.Hold{{ID: "h1", Count: 1}}}}
		o.Targets = append(o.Targets, admin.Target{Name: "zk", Loop: lively, State: targetState})
		s, err := admin.New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"GET /api/v1/status", "GET /api/v1/holds", "GET /api/v1/services", "POST /api/v1/holds/h1/approve"} {
			method, path, _ := strings.Cut(path, " ")
			start := time.Now()
			if w := call(s.Admin(), method, path); w.Code != http.StatusOK {
				t.Errorf("%s %s = %d %s", method, path, w.Code, w.Body)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("%s %s takes %s, want that of one silent loop", method, path, took)
			}
		}
	})
}

func TestServices_pages(t *testing.T) {
	l := &loop{}
	for _, name := range []registry.Name{"a:1", "b:1", "c:1", "d:1", "e:1"} {
		l.st.Services = append(l.st.Services, bridge.ServiceStatus{Bridge: "b", Service: name})
	}
	slices.Reverse(l.st.Services)
	api := server(t, registry.NewTable(), l).Admin()
	var got []string
	for next := ""; ; {
		page := decode[admin.Page[admin.Service]](t, call(api, "GET", "/api/v1/services?limit=2&continue="+next))
		if page.Total != 5 || len(page.Items) > 2 {
			t.Fatalf("page = %+v, want at most 2 of 5", page)
		}
		for _, sv := range page.Items {
			got = append(got, string(sv.Service))
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	if strings.Join(got, " ") != "a:1 b:1 c:1 d:1 e:1" {
		t.Errorf("pages = %v, want each service once, in order", got)
	}
	for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "continue=***"} {
		if w := call(api, "GET", "/api/v1/services?"+bad); w.Code != 400 {
			t.Errorf("GET /api/v1/services?%s = %d, want 400", bad, w.Code)
		}
	}
}

func TestHolds(t *testing.T) {
	l := &loop{st: bridge.Status{Holds: []bridge.Hold{{ID: "h1", Count: 1, Entries: []string{"x"}}}}}
	api := server(t, registry.NewTable(), l).Admin()

	if page := decode[admin.Page[admin.Hold]](t, call(api, "GET", "/api/v1/holds")); page.Items[0].ID != "h1" || page.Items[0].Target != "zk" {
		t.Errorf("GET /api/v1/holds = %+v, want h1 of zk", page)
	}
	for decision, result := range map[string]string{"approve": "approved", "deny": "denied"} {
		d := decode[admin.Decision](t, call(api, "POST", "/api/v1/holds/h1/"+decision))
		if d != (admin.Decision{ID: "h1", Target: "zk", Count: 1, Result: result, Recorded: true}) {
			t.Errorf("%s h1 = %+v, want it recorded with result %s", decision, d, result)
		}
	}
	if !slices.Contains(l.decided, "approve h1") || !slices.Contains(l.decided, "deny h1") {
		t.Errorf("decided %q, want both decisions", l.decided)
	}
	if w := call(api, "POST", "/api/v1/holds/h2/approve"); w.Code != 404 {
		t.Errorf("approve h2, which is gone = %d, want 404", w.Code)
	}
	if w := call(api, "GET", "/api/v1/holds/h1/approve"); w.Code != 404 || len(l.decided) != 2 {
		t.Errorf("GET .../approve = %d, decided %v, want 404 and no decision", w.Code, l.decided)
	}
	l.set(func(l *loop) { l.refuse = bridge.ErrNoHold })
	if w := call(api, "POST", "/api/v1/holds/h1/approve"); w.Code != 404 {
		t.Errorf("approve a hold that went meanwhile = %d %s, want 404", w.Code, w.Body)
	}
	l.set(func(l *loop) { l.refuse = errors.New("it changed meanwhile") })
	if w := call(api, "POST", "/api/v1/holds/h1/approve"); w.Code != 409 || !strings.Contains(w.Body.String(), "it changed meanwhile") {
		t.Errorf("approve a hold that changed meanwhile = %d %s, want 409 and why", w.Code, w.Body)
	}
}

// A connection to a file that is not a socket is refused, as to a stale socket.
func TestListen_StaleSocket(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.ndjson")
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.New(t.Context(), admin.Options{Admin: "unix:" + file}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("New at a file = %v, want that it is not a socket", err)
	}
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the file was deleted: %v %v", info, err)
	}
}
