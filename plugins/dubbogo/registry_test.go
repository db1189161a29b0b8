package dubbogo_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// open returns the registry of a client as dubbo-go opens it.
func open(t testing.TB, c *client.Client) registry.Registry {
	t.Helper()
	u := at(c)
	r, err := extension.GetRegistry(u.Protocol, u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Destroy)
	return r
}

func parsed(t testing.TB, text string) *common.URL {
	t.Helper()
	u, err := common.NewURL(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func provider(t testing.TB, n int, params string) *common.URL {
	t.Helper()
	return parsed(t, fmt.Sprintf("tri://10.0.0.%d:20000/api.Greeter?interface=api.Greeter&application=greeter&side=provider&registry.role=3&%s", n, params))
}

func consumer(t testing.TB) *common.URL {
	t.Helper()
	return parsed(t, "tri://10.0.0.9/api.Greeter?interface=api.Greeter&side=consumer&registry.role=0")
}

// heard records the notifications of a directory of dubbo-go.
type heard struct {
	mu   sync.Mutex
	last []string
	keys map[string]bool // keys by which dubbo-go distinguishes providers
}

// Notify implements registry.NotifyListener.
func (*heard) Notify(*registry.ServiceEvent) { panic("it is notified of whole lists") }

// NotifyAll implements registry.NotifyListener.
func (h *heard) NotifyAll(events []*registry.ServiceEvent, done func()) {
	defer done()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.keys = nil, make(map[string]bool)
	for _, e := range events {
		h.last = append(h.last, e.Service.Location+" "+e.Service.GetParam(constant.WeightKey, "-"))
		h.keys[e.Key()] = true
	}
	slices.Sort(h.last)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.last, ", ")
}

func (h *heard) known() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.keys
}

// TestRegistry_Listeners: listeners are notified of the first providers, of additions, weights and
// removals. The key stays the same with another weight, because dubbo-go ends a provider whose key
// changes.
func TestRegistry_Listeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := clientfake.New()
		providers, consumers := open(t, member(t, world)), open(t, member(t, world))
		register := func(u *common.URL) {
			t.Helper()
			if err := providers.Register(u); err != nil {
				t.Fatal(err)
			}
		}
		register(provider(t, 1, "weight=30"))
		synctest.Wait()
		h, u := new(heard), consumer(t)
		if err := consumers.LoadSubscribeInstances(u, h); err != nil || h.String() != "10.0.0.1:20000 30" {
			t.Fatalf("%v, %v", h, err)
		}
		for range 2 {
			if err := consumers.Subscribe(u, h); err != nil {
				t.Fatal(err)
			}
		}
		register(provider(t, 2, ""))
		register(provider(t, 3, "version=2"))
		synctest.Wait()
		if got := h.String(); got != "10.0.0.1:20000 30, 10.0.0.2:20000 100" {
			t.Errorf("one came: %s", got)
		}
		before := h.known()
		world.Weigh("10.0.0.2:20000", 10)
		synctest.Wait()
		if got := h.String(); got != "10.0.0.1:20000 30, 10.0.0.2:20000 10" {
			t.Errorf("another weight: %s", got)
		}
		if now := h.known(); !maps.Equal(now, before) {
			t.Errorf("keys %v, before %v", now, before)
		}
		if err := providers.UnRegister(provider(t, 1, "weight=30")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := h.String(); got != "10.0.0.2:20000 10" {
			t.Errorf("one went: %s", got)
		}
		if err := consumers.UnSubscribe(u, h); err != nil {
			t.Fatal(err)
		}
		providers.Destroy()
		synctest.Wait()
		if got := h.String(); got != "10.0.0.2:20000 10" {
			t.Errorf("after it listens no longer: %s", got)
		}
	})
}

// TestRegistry_IgnoredRegistrations: as in dubbo-go's own registries, but without panics.
func TestRegistry_IgnoredRegistrations(t *testing.T) {
	r := open(t, member(t, clientfake.New()))
	one, h := provider(t, 1, ""), new(heard)
	if err := r.Register(one); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		do     func() error
		refuse bool
	}{
		"registered twice":           {func() error { return r.Register(one) }, true},
		"unregistered unregistered":  {func() error { return r.UnRegister(provider(t, 2, "")) }, true},
		"nothing registered":         {func() error { return r.Register(nil) }, true},
		"nothing unregistered":       {func() error { return r.UnRegister(nil) }, true},
		"nothing subscribed":         {func() error { return r.Subscribe(nil, h) }, true},
		"nobody subscribed":          {func() error { return r.Subscribe(consumer(t), nil) }, true},
		"nobody loads":               {func() error { return r.LoadSubscribeInstances(consumer(t), nil) }, true},
		"nothing unsubscribed":       {func() error { return r.UnSubscribe(nil, h) }, true},
		"no interface":               {func() error { return r.Register(parsed(t, "tri://10.0.0.1:1/?side=provider")) }, true},
		"a host that is no address":  {func() error { return r.Register(parsed(t, "tri://localhost:1/api.A?side=provider")) }, true},
		"a consumer is none":         {func() error { return r.Register(consumer(t)) }, false},
		"a consumer was none":        {func() error { return r.UnRegister(consumer(t)) }, false},
		"overrides of a provider":    {func() error { return r.Subscribe(provider(t, 1, "category=configurators"), h) }, false},
		"unsubscribed unsubscribed":  {func() error { return r.UnSubscribe(consumer(t), h) }, false},
		"another version is another": {func() error { return r.Register(provider(t, 1, "version=2")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.do(); (err != nil) != c.refuse {
				t.Errorf("got %v", err)
			}
		})
	}
	r.Destroy()
	r.Destroy()
	if err := r.Register(provider(t, 5, "")); !errors.Is(err, client.ErrClosed) || r.IsAvailable() {
		t.Errorf("once destroyed: %v", err)
	}
}

// TestDrain_End: all providers of a process share the time limit. The wait ends at once if the
// registry is unreachable.
func TestDrain_End(t *testing.T) {
	for name, c := range map[string]struct {
		obstruct func(*clientfake.Registry, registry.Registry) error
		want     time.Duration
	}{
		"another provides the same": {func(_ *clientfake.Registry, other registry.Registry) error { return other.Register(provider(t, 1, "")) }, 10 * time.Second},
		"the registry is away": {func(world *clientfake.Registry, _ registry.Registry) error {
			world.Down(errors.New("the registry is away"))
			return nil
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world := clientfake.New()
				own := member(t, world)
				r, other := open(t, own), open(t, member(t, world))
				for n := range 5 {
					if err := r.Register(provider(t, n+1, "")); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.obstruct(world, other); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				began := time.Now()
				for n := range 5 {
					if err := r.UnRegister(provider(t, n+1, "")); err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(began).Truncate(time.Second); took != c.want {
					t.Errorf("took %s", took)
				}
				if left := own.Status().Instances; len(left) > 0 {
					t.Errorf("still published: %v", left)
				}
			})
		})
	}
}

// TestRegistry_Protocols: dubbo-go does not filter a list by protocol.
func TestRegistry_Protocols(t *testing.T) {
	c := member(t, clientfake.New())
	for n, protocol := range []string{"tri", "dubbo"} {
		i := client.Instance{
			Application: "greeter", Interfaces: []client.Interface{{Name: "api.Greeter"}}, Host: fmt.Sprintf("10.0.0.%d", n+1), Port: 20000, Protocol: protocol,
		}
		if err := c.Register(i); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitVisible(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	h := new(heard)
	if err := open(t, c).LoadSubscribeInstances(consumer(t), h); err != nil || h.String() != "10.0.0.1:20000 100" {
		t.Errorf("%v, %v", h, err)
	}
}

// TestDestroy: destroying any registry of an address ends all of them.
func TestDestroy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := clientfake.New()
		c, others := member(t, world), open(t, member(t, world))
		u := at(c)
		one, err := extension.GetRegistry(u.Protocol, u)
		if err != nil {
			t.Fatal(err)
		}
		two, err := extension.GetRegistry(u.Protocol, u)
		if err != nil {
			t.Fatal(err)
		}
		h, far := new(heard), new(heard)
		if err := errors.Join(one.Register(provider(t, 1, "")), one.Subscribe(consumer(t), h), others.Subscribe(consumer(t), far)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		two.Destroy()
		one.Destroy()
		notified := h.String()
		if err := others.Register(provider(t, 2, "")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := far.String(); got != "10.0.0.2:20000 100" {
			t.Errorf("others know %s", got)
		}
		if notified != "10.0.0.1:20000 100" || h.String() != notified {
			t.Errorf("notified of %s, and then %s", notified, h)
		}
		if err := one.Subscribe(consumer(t), h); !errors.Is(err, client.ErrClosed) {
			t.Errorf("it listens: %v", err)
		}
	})
}

// TestRegistry_SharedAddress: with registry-type all, dubbo-go registers a provider at both levels, and
// withdraws it at both or at one.
func TestRegistry_SharedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := member(t, clientfake.New())
		one, two := open(t, c), open(t, c)
		u := provider(t, 1, "")
		if err := errors.Join(one.Register(u), two.Register(u)); err != nil {
			t.Error(err)
		}
		if got := c.Status().Instances; len(got) != 1 {
			t.Errorf("registered: %v", got)
		}
		if err := one.UnRegister(u); err != nil || len(c.Status().Instances) != 0 {
			t.Errorf("withdrawn by one: %v, left %v", err, c.Status().Instances)
		}
		if err := two.UnRegister(u); err != nil {
			t.Errorf("by the other: %v", err)
		}
	})
}
