package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/demo"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// screen is what the demo prints, to be waited for.
type screen struct {
	mu    sync.Mutex
	text  strings.Builder
	lines chan string // reported each write
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.text.Write(p)
	select {
	case s.lines <- s.text.String():
	default:
		<-s.lines
		s.lines <- s.text.String()
	}
	return n, err
}

// waitFor waits until the screen shows all of the texts.
func (s *screen) waitFor(t *testing.T, texts ...string) string {
	t.Helper()
	limit := time.NewTimer(3 * time.Minute)
	defer limit.Stop()
	shown := ""
	for {
		missing := ""
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				missing = text
			}
		}
		if missing == "" {
			return shown
		}
		select {
		case shown = <-s.lines:
		case <-limit.C:
			t.Fatalf("%q does not show in:\n%s", missing, shown)
		}
	}
}

func live(t *testing.T, o demo.Options) (s *screen, end func()) {
	t.Helper()
	s = &screen{lines: make(chan string, 1)}
	o.Out, o.Interval = s, 200*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- demo.Run(ctx, o) }()
	return s, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func once(t *testing.T, o demo.Options) demo.State {
	t.Helper()
	var out bytes.Buffer
	o.Out, o.Once, o.JSON = &out, true, true
	if err := demo.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var state demo.State
	if err := json.Unmarshal(out.Bytes(), &state); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	return state
}

func TestOnce(t *testing.T) {
	t.Run("the final state as one document", func(t *testing.T) {
		state := once(t, demo.Options{})
		providers := make(map[string]int)
		for _, f := range state.Groups {
			providers[f.Path] = len(f.Providers)
		}
		if !state.InSync || len(providers) != 4 || providers["/dubbo/api.Greeter/providers"] != 3 ||
			providers["/dubbo/api.Farewell/providers"] != 3 || providers["/dubbo/api.Inventory/providers"] != 2 {
			t.Errorf("in sync %t, providers %v, want true and those of the mesh", state.InSync, providers)
		}
		if providers["/dubbo/api.Orders/providers"] != 1 {
			t.Error("an endpoint that is draining is offered")
		}
		for _, sv := range state.Services {
			if sv.Reason != bridge.ReasonSynced {
				t.Errorf("reason of %s = %s, want synced", sv.Service, sv.Reason)
			}
		}
	})

	t.Run("the final state as text, of a mesh of one's own", func(t *testing.T) {
		var out bytes.Buffer
		err := demo.Run(t.Context(), demo.Options{Out: &out, Once: true, Root: "/mine", Mesh: []byte(`
services:
  - host: one.team.svc.cluster.local
    port: 1234
    keys: ["providers:a.B:1.0:g"]
    endpoints: [{ address: 127.0.0.1, port: 4321 }]
`)})
		if err != nil || !strings.Contains(out.String(), "/mine/a.B/providers\n  tri://127.0.0.1:4321/a.B?") ||
			!strings.Contains(out.String(), "one.team.svc.cluster.local:1234: synced\n") {
			t.Errorf("Run = %v, want two services in sync, printed\n%s", err, &out)
		}
	})
}

func TestLive(t *testing.T) {
	s, end := live(t, demo.Options{})
	defer end()
	shown := s.waitFor(t,
		"in sync: 9 entries in 4 groups",
		"mesh: add 10.244.3.14 of greeter.shop.svc.cluster.local\n",
		"+ /dubbo/api.Greeter/providers tri://10.244.3.14:20000 weight=200 meshLocality=eu-1/eu-1c (",
		"+ /dubbo/api.Farewell/providers tri://10.244.3.14:20000?group=blue&version=1.0.0",
		"~ /dubbo/api.Greeter/providers tri://10.244.3.14:20000",
		"- /dubbo/api.Greeter/providers tri://10.244.3.14:20000 (",
		"+ /dubbo/api.Inventory/providers tri://10.244.3.23:20880?version=2.0.0",
		"- /dubbo/api.Inventory/providers tri://10.244.3.23:20880?version=2.0.0",
	)
	if strings.Contains(shown, "web.shop") || strings.Contains(shown, "10.244.1.41") {
		t.Error("a service without a key is written")
	}
}

func TestZooKeeper(t *testing.T) {
	server := zkfake.New(zkfake.Options{})
	address, err := server.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	const foreign = "/api.Greeter/providers/tri%3A%2F%2F10.9.9.9%3A1%2Fapi.Greeter"
	if err := errors.Join(server.Put("/dubbo"+foreign, nil), server.Put("/xds-bridge-demo"+foreign, nil)); err != nil {
		t.Fatal(err)
	}
	before := strings.Join(server.Paths("/"), "\n")

	t.Run("live entries are there, and gone after the end", func(t *testing.T) {
		s, end := live(t, demo.Options{ZooKeeper: address})
		s.waitFor(t, "in sync: 9 entries", "it is left as it was")
		if n := len(server.Children("/xds-bridge-demo/api.Greeter/providers")); n < 4 {
			t.Errorf("%d providers of api.Greeter, want at least 4", n)
		}
		if n := len(server.Children("/dubbo/api.Greeter/providers")); n != 1 || len(server.Children("/dubbo")) != 1 {
			t.Errorf("%d providers where consumers look, want the foreign one", n)
		}
		end()
		if after := strings.Join(server.Paths("/"), "\n"); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	})

	t.Run("once prints what was there and leaves nothing", func(t *testing.T) {
		if state := once(t, demo.Options{ZooKeeper: address}); !state.InSync || len(state.Groups) != 4 {
			t.Errorf("%+v", state)
		}
		if after := strings.Join(server.Paths("/"), "\n"); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	})

	t.Run("one that does not answer is named", func(t *testing.T) {
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := demo.Run(ctx, demo.Options{Out: io.Discard, ZooKeeper: address})
		if !errors.Is(err, demo.ErrUnreachable) || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "--zookeeper") {
			t.Error(err)
		}
	})
}

func TestBadMeshes(t *testing.T) {
	for name, c := range map[string]struct{ mesh, want string }{
		"an unknown key":           {"services: []\nnope: 1", "nope"},
		"no services":              {"churn: { every: 1s }", "no services"},
		"a service without a port": {"services: [{ host: a.b }]", `service "a.b": host and port are required`},
		"a key that is none":       {"services: [{ host: a.b, port: 1, keys: [x] }]", `"x"`},
		"an address that is none":  {"services: [{ host: a.b, port: 1, endpoints: [{ address: x }] }]", `"x"`},
		"a health that is none":    {"services: [{ host: a.b, port: 1, endpoints: [{ address: 1.2.3.4, health: fine }] }]", `"fine"`},
		"a step that leads nowhere": {
			"services: [{ host: a.b, port: 1 }]\nchurn: { steps: [{ add: c.d, endpoint: { address: 1.2.3.4 } }] }", `churn.steps[0]: "c.d"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := demo.Run(t.Context(), demo.Options{Out: io.Discard, Once: true, Mesh: []byte(c.mesh)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if err := demo.Run(t.Context(), demo.Options{Out: io.Discard, JSON: true}); err == nil || !strings.Contains(err.Error(), "--once") {
		t.Error(err)
	}
}
