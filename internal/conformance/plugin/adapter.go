// Package plugin is the test suite for every adapter of an RPC framework and every backend of the
// client. Only the adapter under test calls the framework.
package plugin

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// Adapter looks up a name through a framework.
type Adapter struct {
	// Follow makes the framework look up a name through a client and, if it can, follow it.
	Follow func(t testing.TB, r client.Registry, name string) Following
}

// Following is a name that a framework follows.
type Following interface {
	// Found returns the addresses that the framework received last and would call, or why it
	// has none. It is called repeatedly.
	Found() ([]Found, error)

	// Spoil overwrites the last list of the framework in place, as a framework does that sorts
	// it.
	Spoil()

	// Stop stops following. It may be called twice.
	Stop()
}

// Found is an address as a framework receives it.
type Found struct {
	Address string // host:port
	Weight  int    // 0: the framework receives none
}

// Adapters tests what every framework relies on. Each address is reported once, whatever it
// provides. Weights are those of the registry, including 0. Outages and names without providers
// remove nothing. A reader may change its list without an effect on others, and nothing waits for a
// reader.
func Adapters(t *testing.T, a Adapter) {
	t.Helper()
	for name, try := range map[string]func(testing.TB, *trial){
		"an address that provides several interfaces is reported once": addressOnce,
		"weights are those of the registry":                            weights,
		"a weight of 0 gets no calls while there are others":           zeroWeight,
		"an outage keeps found addresses, whatever else is looked up":  outage,
		"each removal is reported, even of the last address":           goes,
		"a reader may change its list without an effect on others":     spoiled,
		"stop does not wait for a reader, and may be repeated":         stops,
		"a name without providers is followed until there is one":      appears,
	} {
		t.Run(name, func(t *testing.T) {
			r := clientfake.New()
			try(t, &trial{a, r, member(t, r), member(t, r)})
		})
	}
}

// trial is an adapter with a registry, a provider and a consumer.
type trial struct {
	Adapter
	registry            *clientfake.Registry
	providers, consumer *client.Client
}

func member(t testing.TB, r *clientfake.Registry) *client.Client {
	t.Helper()
	return clientfake.Member(t, r, client.Options{DrainDelay: time.Millisecond, ForgetAfter: time.Millisecond})
}

const adapted = "greeter"

func instance(n int) client.Instance {
	return client.Instance{Application: adapted, Host: fmt.Sprintf("10.0.0.%d", n), Port: 8080, Protocol: "grpc"}
}

func (x *trial) provide(t testing.TB, instances ...client.Instance) {
	t.Helper()
	for _, i := range instances {
		if err := x.providers.Register(i); err != nil {
			t.Fatal(err)
		}
	}
}

func (x *trial) follow(t testing.TB, name string) Following {
	t.Helper()
	f := x.Follow(t, x.consumer, name)
	t.Cleanup(f.Stop)
	return f
}

// await waits until a framework has found exactly these addresses, each once.
func await(t testing.TB, f Following, want ...string) []Found {
	t.Helper()
	deadline := time.Now().Add(time.Minute) // for a failing test
	for {
		found, err := f.Found()
		got := make([]string, 0, len(found))
		for _, one := range found {
			got = append(got, one.Address)
		}
		slices.Sort(got)
		if err == nil && slices.Equal(got, want) {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("found %v, %v; want %v", got, err, want)
		}
		<-time.NewTimer(5 * time.Millisecond).C
	}
}

func addressOnce(t testing.TB, x *trial) {
	several := instance(1)
	several.Interfaces = []client.Interface{{Name: "api.A"}, {Name: "api.B"}}
	x.provide(t, several, instance(2))
	await(t, x.follow(t, adapted), "10.0.0.1:8080", "10.0.0.2:8080")
}

func weights(t testing.TB, x *trial) {
	one, two := instance(1), instance(2)
	one.Weight, two.Weight = client.WeightOf(0.3), client.WeightOf(0.1)
	x.provide(t, one, two)
	by := make(map[string]int)
	for _, found := range await(t, x.follow(t, adapted), "10.0.0.1:8080", "10.0.0.2:8080") {
		by[found.Address] = found.Weight
	}
	if one, two := by["10.0.0.1:8080"], by["10.0.0.2:8080"]; one != 3*two {
		t.Errorf("weights %d and %d; want three to one, or none", one, two)
	}
}

func zeroWeight(t testing.TB, x *trial) {
	x.provide(t, instance(1), instance(2))
	f := x.follow(t, adapted)
	await(t, f, "10.0.0.1:8080", "10.0.0.2:8080")
	x.registry.Weigh("10.0.0.1:8080", 0)
	await(t, f, "10.0.0.2:8080")
	x.registry.Weigh("10.0.0.2:8080", 0)
	await(t, f, "10.0.0.1:8080", "10.0.0.2:8080")
	x.registry.Weigh("10.0.0.1:8080", 10)
	await(t, f, "10.0.0.1:8080")
}

func outage(t testing.TB, x *trial) {
	x.provide(t, instance(1), instance(2))
	f := x.follow(t, adapted)
	await(t, f, "10.0.0.1:8080", "10.0.0.2:8080")
	x.registry.Down(errors.New("connection refused"))
	defer x.registry.Down(nil)
	w := x.consumer.Watch(client.Named(adapted))
	defer w.Stop()
	for {
		s, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Err != nil {
			break // the outage is detected
		}
	}
	other := x.follow(t, "nobody")
	if _, err := other.Found(); err == nil {
		t.Log("an unknown name is reported as empty") // by frameworks that cannot report an error
	}
	await(t, f, "10.0.0.1:8080", "10.0.0.2:8080")
	await(t, x.follow(t, adapted), "10.0.0.1:8080", "10.0.0.2:8080")
}

func goes(t testing.TB, x *trial) {
	x.provide(t, instance(1), instance(2))
	f := x.follow(t, adapted)
	await(t, f, "10.0.0.1:8080", "10.0.0.2:8080")
	for n, left := range [][]string{{"10.0.0.2:8080"}, {}} {
		if err := x.providers.Deregister(t.Context(), instance(n+1)); err != nil {
			t.Fatal(err)
		}
		await(t, f, left...)
	}
}

func spoiled(t testing.TB, x *trial) {
	x.provide(t, instance(1), instance(2))
	one, two := x.follow(t, adapted), x.follow(t, adapted)
	await(t, one, "10.0.0.1:8080", "10.0.0.2:8080")
	one.Spoil()
	await(t, two, "10.0.0.1:8080", "10.0.0.2:8080")
	await(t, x.follow(t, adapted), "10.0.0.1:8080", "10.0.0.2:8080")
}

func stops(t testing.TB, x *trial) {
	x.provide(t, instance(1))
	for _, name := range []string{adapted, "nobody"} {
		f := x.Follow(t, x.consumer, name)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.Stop()
			f.Stop()
		}()
		select {
		case <-ended:
		case <-time.NewTimer(time.Minute).C:
			t.Errorf("following %s does not end without a reader", name)
		}
	}
}

func appears(t testing.TB, x *trial) {
	f := x.follow(t, adapted)
	if found, _ := f.Found(); len(found) != 0 {
		t.Errorf("found %v before there was a provider", found)
	}
	x.provide(t, instance(1))
	await(t, f, "10.0.0.1:8080")
}
