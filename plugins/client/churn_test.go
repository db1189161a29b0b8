package client_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// TestTenThousandSubscriptions adds and removes ten thousand subscriptions and registrations at
// the same time, several times, while the registry changes. Neither goroutines nor memory grow with
// the rounds, and a later subscription receives the current state.
func TestTenThousandSubscriptions(t *testing.T) {
	const at, rounds = 10_000, 3
	r := clientfake.New()
	c := open(t, r.Backend(), client.Options{KeepFresh: time.Millisecond, DrainDelay: time.Nanosecond})
	if err := c.Register(provider(0)); err != nil {
		t.Fatal(err)
	}
	churn(t, c, at)
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	for range rounds {
		churn(t, c, at)
	}
	ticker := time.NewTicker(10 * time.Millisecond) // timers of lingering queries may be running
	defer ticker.Stop()
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines; <-ticker.C {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines after %d more rounds, %d before", runtime.NumGoroutine(), rounds, goroutines)
		}
	}
	if now := heapInUse(); now > heap+4<<20 {
		t.Errorf("%d KiB in use after %d more rounds, %d KiB before", now>>10, rounds, heap>>10)
	}
	if err := c.WaitVisible(t.Context(), provider(0)); err != nil {
		t.Error(err)
	}
}

// provider returns the n-th of several instances, each of a different application.
func provider(n int) client.Instance {
	return client.Instance{Application: fmt.Sprintf("greeter%d", n), Host: "10.0.0.1", Port: 20000, Protocol: "tri"}
}

// churn subscribes and unsubscribes n times at the same time, by every method.
func churn(t *testing.T, c *client.Client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			q := client.Named(provider(i % 7).Application)
			switch i % 10 {
			case 0:
				if err := errors.Join(c.Register(provider(1+i%6)), c.Deregister(ctx, provider(1+i%6))); err != nil {
					t.Error(err)
				}
			case 1, 2, 3:
				if _, err := c.Resolve(ctx, q); err != nil {
					t.Error(err)
				}
			default:
				w := c.Watch(q)
				if _, err := w.Next(ctx); err != nil {
					t.Error(err)
				}
				running.Go(w.Stop) // twice, from two goroutines
				w.Stop()
			}
		})
	}
	running.Wait()
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // memory that finalizers released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// TestClient_Independent: clients of different registries do not affect each other, even if one is
// closed or its registry is unreachable.
func TestClient_Independent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newScripted(), newScripted()
		a, b := open(t, one.backend(), client.Options{}), open(t, two.backend(), client.Options{})
		one.all(greeter("10.0.0.1"))
		two.all(greeter("10.0.0.2"))
		for c, want := range map[*client.Client]string{a: "[10.0.0.1]", b: "[10.0.0.2]"} {
			if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != want {
				t.Errorf("%s, %v, want %s", hosts(s), err, want)
			}
		}
		one.away(errors.New("connection refused"))
		if s, err := b.Resolve(t.Context(), greeterKey); err != nil || s.Err != nil {
			t.Errorf("while the other's registry is away: %v, %v", s.Err, err)
		}
		_ = a.Close()
		two.all(greeter("10.0.0.3"))
		if s, err := b.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != "[10.0.0.3]" || !b.Status().Read {
			t.Errorf("after the other closed: %s, %v", hosts(s), err)
		}
	})
}
