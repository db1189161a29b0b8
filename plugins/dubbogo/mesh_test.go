//go:build !race

// dubbo-go itself has data races, see serve_test.go.

package dubbogo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	dclient "dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/registry"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// choices records the ports, with weights, that a call may go to. It is a router behind that of the
// mesh, and its factory.
type choices struct {
	mu   sync.Mutex
	last map[string]string // by service
}

func (c *choices) NewPriorityRouter(*common.URL) (router.PriorityRouter, error) { return c, nil }

func (*choices) URL() *common.URL      { return nil }
func (*choices) Priority() int64       { return 2000 }
func (*choices) Notify([]base.Invoker) {}

// Route implements router.PriorityRouter.
func (c *choices) Route(all []base.Invoker, u *common.URL, call base.Invocation) []base.Invoker {
	ports := []string{}
	for _, i := range all {
		if u := i.GetURL(); u != nil { // nil while dubbo-go destroys it
			ports = append(ports, fmt.Sprintf("%s=%d", u.Port, loadbalance.GetWeight(i, call)))
		}
	}
	slices.Sort(ports)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[u.Service()] = strings.Join(ports, " ")
	return all
}

func (c *choices) of(service string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[service]
}

// await calls a service until these are the choices.
func (c *choices) await(ctx context.Context, t *testing.T, conn *dclient.Connection, service, want string) {
	t.Helper()
	eventually(t, func() error {
		c.mu.Lock()
		c.last[service] = ""
		c.mu.Unlock()
		err := greet(ctx, conn) // there may be no provider
		c.mu.Lock()
		defer c.mu.Unlock()
		if got := c.last[service]; got != want {
			return fmt.Errorf("to choose from: %q, want %q: %w", got, want, err)
		}
		return nil
	})
}

// seeing makes dubbo-go record the choices of calls.
func seeing() *choices {
	seen := &choices{last: make(map[string]string)}
	extension.SetRouterFactory("seeing", func() router.PriorityRouterFactory { return seen })
	return seen
}

// weighs returns a provider as choices reports it.
func weighs(port, weight int) string { return fmt.Sprintf("%d=%d", port, weight) }

// both returns two providers, in order.
func both(one, two string) string { return min(one, two) + " " + max(one, two) }

// TestMesh_Changes: consumers of both levels find a registered interface at its host, with weights,
// subsets and routes. They also learn of removals.
func TestMesh_Changes(t *testing.T) {
	seen := seeing()
	for level, by := range levels() {
		t.Run(level, func(t *testing.T) {
			i, service := serveIstiod(t), "api.Routed."+level
			one, two := freePort(t), freePort(t)
			subsets := []string{"v1", "v2"}
			i.has(greeter, subsets, pod{one, 3, "v1", 0}, pod{two, 1, "v2", 0})
			provide(t, i.providers(t, "provider"), service, one)
			conn := refer(t, i.consumer(t, by), service, dclient.WithRetries(0))
			seen.await(t.Context(), t, conn, service, both(weighs(one, 300), weighs(two, 100)))

			i.routes(greeter, "/"+service+"/Admin")
			canary := context.WithValue(t.Context(), constant.AttachmentKey, map[string]any{"X-Env": []string{"canary"}})
			seen.await(t.Context(), t, conn, service, weighs(one, 300))
			seen.await(canary, t, conn, service, weighs(two, 100))
			if err := conn.CallUnary(t.Context(), []any{"me"}, new(string), "Admin"); err == nil || !strings.Contains(err.Error(), "provider") {
				t.Errorf("a subset without providers: %v", err)
			}

			i.has(greeter, subsets, pod{one, 5, "v1", 0}, pod{two, 1, "v1", 0})
			seen.await(t.Context(), t, conn, service, both(weighs(one, 500), weighs(two, 100)))
			i.has(greeter, subsets, pod{two, 1, "v1", 0})
			seen.await(t.Context(), t, conn, service, weighs(two, 100))
			i.has(greeter, subsets)
			seen.await(t.Context(), t, conn, service, "")
		})
	}
}

// TestMesh_FirstCall: a reference is made when the providers are known.
func TestMesh_FirstCall(t *testing.T) {
	seen, i := seeing(), serveIstiod(t)
	port := freePort(t)
	i.has(greeter, nil, pod{port, 1, "", 0})
	provide(t, i.providers(t, "provider"), "api.First", port)
	before := refer(t, i.consumer(t, registry.WithRegisterInterface()), "api.First")
	seen.await(t.Context(), t, before, "api.First", weighs(port, 100)) // istiod shows the key
	_ = greet(t.Context(), refer(t, i.consumer(t, registry.WithRegisterService()), "api.First", dclient.WithRetries(0)))
	if got := seen.of("api.First"); got != weighs(port, 100) {
		t.Errorf("the first call may go to %q", got)
	}
}

// TestMesh_SharedHost: each interface is found by its own name from the start. An interface without
// providers is not found. Draining pods are not called.
func TestMesh_SharedHost(t *testing.T) {
	seen, i := seeing(), serveIstiod(t)
	port, leaves := freePort(t), freePort(t)
	i.has(greeter, nil, pod{port, 1, "", 0}, pod{leaves, 1, "", corev3.HealthStatus_DRAINING})
	providers, consumer := i.providers(t, "provider"), i.consumer(t, registry.WithRegisterInterface())
	for _, service := range []string{"api.One", "api.Two"} {
		provide(t, providers, service, port)
		seen.await(t.Context(), t, refer(t, consumer, service), service, weighs(port, 100))
	}
	seen.await(t.Context(), t, refer(t, consumer, "api.None"), "api.None", "")
}

// TestMesh_NewReference: dubbo-go's directory is destroyed and made again, and there may be two of
// them.
func TestMesh_NewReference(t *testing.T) {
	i := serveIstiod(t)
	port := freePort(t)
	i.has(greeter, nil, pod{port, 1, "", 0})
	r := i.providers(t, "provider")
	provide(t, r, "api.Again", port)
	u := parsed(t, "tri://10.9.9.9/api.Again?interface=api.Again&side=consumer")
	for range 3 {
		h := new(heard)
		if err := r.Subscribe(u, h); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if got := h.String(); got != fmt.Sprintf("127.0.0.1:%d 100", port) {
				return errors.New(got)
			}
			return nil
		})
		var ending sync.WaitGroup
		for range 2 {
			ending.Go(func() { _ = r.UnSubscribe(u, h) })
		}
		ending.Wait()
	}
}

// TestMesh_MovedService: a provider is registered before the mesh has its Service. The Service is
// replaced by one of another name. If two Services have the provider, both are called.
func TestMesh_MovedService(t *testing.T) {
	seen, i := seeing(), serveIstiod(t)
	port, second := freePort(t), freePort(t)
	provide(t, i.providers(t, "provider"), "api.Moves", port)
	conn := refer(t, i.consumer(t, registry.WithRegisterInterface()), "api.Moves")
	i.has(greeter, nil, pod{port, 1, "", 0})
	seen.await(t.Context(), t, conn, "api.Moves", weighs(port, 100))
	i.has(other, nil, pod{second, 1, "", 0})
	provide(t, i.providers(t, "second"), "api.Moves", second)
	seen.await(t.Context(), t, conn, "api.Moves", both(weighs(port, 100), weighs(second, 100)))
}

// TestMesh_RegistrationConnections: any number of registrations needs one connection and one stream,
// and consumers need none.
func TestMesh_RegistrationConnections(t *testing.T) {
	i := serveIstiod(t)
	port := freePort(t)
	i.has(greeter, nil, pod{port, 1, "", 0})
	r := i.providers(t, "provider")
	shown := func(service string) {
		t.Helper()
		eventually(t, func() error {
			for _, c := range i.Connections() {
				if strings.Contains(c.Node.String(), "providers:"+service+"::") {
					return nil
				}
			}
			return errors.New(service + " is not shown")
		})
	}
	provide(t, r, "api.Many0", port)
	shown("api.Many0")
	before := len(i.Connections())
	for n := range 30 {
		service := fmt.Sprintf("api.Many%d", n+1)
		provide(t, r, service, port)
		if err := r.Register(parsed(t, "tri://10.9.9.9/"+service+"?side=consumer")); err != nil {
			t.Fatal(err)
		}
	}
	shown("api.Many30")
	eventually(t, func() error { // the stream of the earlier keys ends
		if now := len(i.Connections()); now > before {
			return fmt.Errorf("%d connections, %d before", now, before)
		}
		return nil
	})
	r.Destroy()
	eventually(t, func() error {
		if left := len(i.Connections()); left > 0 {
			return fmt.Errorf("%d connections are left", left)
		}
		return nil
	})
}

// TestMesh_Outage: the registry reports it, known providers remain, and nothing waits.
func TestMesh_Outage(t *testing.T) {
	seen, i := seeing(), serveIstiod(t)
	port := freePort(t)
	i.has(greeter, nil, pod{port, 1, "", 0})
	r := i.providers(t, "provider")
	provide(t, r, "api.Away", port)
	conn := refer(t, i.consumer(t, registry.WithRegisterInterface()), "api.Away", dclient.WithRetries(0))
	seen.await(t.Context(), t, conn, "api.Away", weighs(port, 100))
	if !r.IsAvailable() {
		t.Error("it says that it is away")
	}
	i.Refuse(errors.New("away"))
	i.Drop(errors.New("away"))
	eventually(t, func() error {
		if r.IsAvailable() {
			return errors.New("it says that it is there")
		}
		return nil
	})
	h, u := new(heard), parsed(t, "tri://10.9.9.9/api.Away?interface=api.Away&side=consumer")
	if err := errors.Join(r.Subscribe(u, h), r.UnSubscribe(u, h)); err != nil {
		t.Error(err)
	}
	seen.await(t.Context(), t, conn, "api.Away", weighs(port, 100))
}

// TestMesh_AmbiguousKey: with a colon it would be another key.
func TestMesh_AmbiguousKey(t *testing.T) {
	r := serveIstiod(t).providers(t, "provider")
	err := r.Register(parsed(t, "tri://127.0.0.1:20000/api.Colon?side=provider&interface=api.Colon&version=1%3A2"))
	if err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("got %v", err)
	}
}
