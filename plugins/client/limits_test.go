package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// steps is a source that runs the steps of a test.
type steps chan func(*registry.Table)

// Run implements registry.Source.
func (s steps) Run(ctx context.Context, t *registry.Table) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case do := <-s:
			do(t)
		}
	}
}

// TestClient_Limits: services beyond the limit are unknown, not absent, until there is room.
func TestClient_Limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := make(steps)
		c := start(t, Backend{Kind: "mesh", Source: source})
		half := registry.Attributes{"comment": strings.Repeat("x", 65<<20)}
		service := func(host string) *registry.Service {
			return &registry.Service{
				Name: registry.Name(host), Attributes: half,
				Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 80, Health: registry.Healthy}},
			}
		}
		one, two := service("one.shop.svc.cluster.local:80"), service("two.shop.svc.cluster.local:80")
		ask := func(s *registry.Service) (Snapshot, error) {
			a, err := naming.ParseHostAddress(string(s.Name))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return c.Resolve(ctx, ByHost(a.String()))
		}
		source <- func(t *registry.Table) { t.Replace(slices.Values([]*registry.Service{one, two})) }
		synctest.Wait()
		if got, err := ask(one); err != nil || len(got.Endpoints) != 1 {
			t.Errorf("Resolve(%s) = %v, %v, want one endpoint", one.Name, got.Endpoints, err)
		}
		if got, err := ask(two); !errors.Is(err, ErrTooLarge) || !errors.Is(err, registry.ErrLimit) {
			t.Errorf("Resolve(%s) = %v, %v, want ErrTooLarge", two.Name, got.Endpoints, err)
		}
		source <- func(t *registry.Table) { t.Replace(slices.Values([]*registry.Service{two})) }
		synctest.Wait()
		if got, err := ask(two); err != nil || len(got.Endpoints) != 1 {
			t.Errorf("Resolve(%s) = %v, %v, want one endpoint once there is room", two.Name, got.Endpoints, err)
		}
	})
}

// TestNamed_AnswersByHostWithoutServiceKeys: of an istiod that does not show service keys.
func TestNamed_AnswersByHostWithoutServiceKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const host = "greeter.shop.svc.cluster.local:8000"
		source, interest := make(steps), registry.NewInterest()
		c := start(t, Backend{
			Kind: "mesh", Source: source, Interest: interest, Names: func(q Query) []string { return []string{q.text} },
			Err: func() error { return &debug.Error{Cause: debug.Forbidden} },
		})
		w := c.Watch(Named(host))
		defer w.Stop()
		source <- func(t *registry.Table) {
			t.Replace(slices.Values([]*registry.Service{{
				Name: host, Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 8000, Health: registry.Healthy}},
			}}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := w.Next(ctx)
		if err != nil || len(got.Endpoints) != 1 || !errors.Is(got.Err, ErrDebugRefused) {
			t.Errorf("Next() = %v (%v), %v, want one endpoint and ErrDebugRefused beside it", got.Endpoints, got.Err, err)
		}
		if again, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Next() = %v (%v), %v once more", again.Endpoints, again.Err, err)
		}
	})
}
